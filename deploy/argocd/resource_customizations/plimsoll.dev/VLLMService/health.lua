-- Health of a VLLMService in Argo CD. Written for Argo's default sandbox: no string library, no globals kept.
-- It reads what kstatus reads (generations, Stalled, Reconciling, Ready), and shows a service on hold as Suspended.

local function health(status, message)
  return { status = status, message = message }
end

local function find(kind)
  if obj.status.conditions ~= nil then
    for _, condition in ipairs(obj.status.conditions) do
      if condition.type == kind then
        return condition
      end
    end
  end
  return { status = "Unknown", reason = "", message = "The operator has not reported the condition " .. kind }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "Being deleted")
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "Waiting for the operator to look at this generation of the spec")
end

local stalled, reconciling, ready = find("Stalled"), find("Reconciling"), find("Ready")
if stalled.status == "True" then
  return health("Degraded", stalled.reason .. ": " .. stalled.message)
end
if reconciling.reason == "OnHold" then
  return health("Suspended", reconciling.message)
end
if reconciling.status == "True" then
  return health("Progressing", reconciling.message)
end
if ready.status == "True" then
  return health("Healthy", ready.message)
end
return health("Progressing", ready.message)
