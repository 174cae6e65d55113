if obj.metadata.annotations ~= nil then
  obj.metadata.annotations["plimsoll.dev/hold"] = nil
end
return obj
