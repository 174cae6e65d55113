"""Argo CD's Lua, as it runs the scripts of a resource customization.

Lua 5.1 with the base and table libraries and a few harmless functions of ``os``; everything else is shut (Argo CD,
``docs/operator-manual/health.md`` and ``util/lua``). The object is the global ``obj``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import lupa.lua51

SCRIPTS: Final = Path("deploy/argocd/resource_customizations/plimsoll.dev/VLLMService")
_SHUT: Final = """
getmetatable("").__index = nil
os = { date = os.date, time = os.time, clock = os.clock, difftime = os.difftime }
string, io, debug, math, coroutine, require, module, dofile, loadfile, python = nil
"""


def run(script: str, obj: Mapping[str, Any]) -> dict[str, Any]:
    """The table that the script returns."""
    lua = lupa.lua51.LuaRuntime(unpack_returned_tuples=True, register_eval=False, register_builtins=False)
    lua.execute(_SHUT)
    lua.globals().obj = _to_lua(lua, obj)
    returned: dict[str, Any] = _to_python(lua.execute(script))
    return returned


def health(obj: Mapping[str, Any]) -> dict[str, Any]:
    """``{"status": …, "message": …}`` of a VLLMService."""
    return run((SCRIPTS / "health.lua").read_text(encoding="utf-8"), obj)


def _to_lua(lua: Any, value: Any) -> Any:
    if isinstance(value, Mapping):
        return lua.table_from({key: _to_lua(lua, inner) for key, inner in value.items() if inner is not None})
    if isinstance(value, list | tuple):
        return lua.table_from([_to_lua(lua, inner) for inner in value])
    return value


def _to_python(value: Any) -> Any:
    if lupa.lua51.lua_type(value) != "table":
        return value
    items = dict(value.items())
    if items and all(isinstance(key, int) for key in items):
        return [_to_python(items[index]) for index in sorted(items)]
    return {key: _to_python(inner) for key, inner in items.items()}
