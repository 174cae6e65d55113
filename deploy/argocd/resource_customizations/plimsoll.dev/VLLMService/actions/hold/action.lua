if obj.metadata.annotations == nil then
  obj.metadata.annotations = {}
end
obj.metadata.annotations["plimsoll.dev/hold"] = "true"
return obj
