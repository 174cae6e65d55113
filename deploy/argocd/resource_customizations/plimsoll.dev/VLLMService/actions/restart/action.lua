if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["plimsoll.dev/restart"] = os.date("!%Y-%m-%dT%XZ")
return obj
