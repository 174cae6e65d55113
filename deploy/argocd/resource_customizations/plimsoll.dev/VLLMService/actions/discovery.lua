local annotations = obj.metadata.annotations or {}
local held = annotations["plimsoll.dev/hold"] == "true"

return {
  hold = { displayName = "Hold (observe only)", disabled = held },
  release = { displayName = "Release from hold", disabled = not held },
  restart = { displayName = "Restart pods", disabled = held },
}
