"""Make vLLM believe in a GPU that this machine does not have: `pretend(...)` before anything of vLLM is imported.

Only planning runs, nothing is ever computed: what is missing of a GPU becomes an object that does nothing. Engine's
Python, with a real triton in a folder of its own.
"""

import importlib.machinery
import os
import sys
import types

# Compiled parts of a CUDA build; that they can be imported is all that is asked of them.
COMPILED = (
    "vllm._C_stable_libtorch",
    "vllm._moe_C_stable_libtorch",
    "vllm._qutlass_C",
    "vllm._flashmla_C",
    "vllm._flashmla_extension_C",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
)
# Imported by name while vLLM itself is imported; what they hold is looked at later, if at all.
HOLLOW = ("vllm.third_party.flashmla.flash_mla_interface", "deep_gemm", "deep_gemm.utils", "deep_gemm.utils.layout")
# Packages of GPU machines, stood in for only once vLLM is imported: it chooses kernels by whether they are there.
PACKAGES = ("flashinfer", "cutlass", "cuda", "quack", "tilelang", "flash_mla", "humming", "nvshmem", "tokenspeed_mla")
GPUS = 8
MULTIPROCESSORS = 132
RUNTIME = "13.0"


class Nothing:
    """Whatever is asked of it: a class whose attributes are such classes, and whose calls return nothing."""

    def __init__(self, *_, **__):
        pass

    def __call__(self, *_, **__):
        return None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


def hollow_attribute(name):
    """An attribute of a module that is not there: a class, for somebody may derive from it."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _Hollow(name, (Nothing,), {})


class _Hollow(type):
    def __getattr__(cls, name):
        return hollow_attribute(name)


def _module(name):
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    sys.modules[name] = module
    return module


def _hollow(name):
    module = _module(name)
    module.__path__ = []
    module.__getattr__ = hollow_attribute


class Finder:
    """Finds what a GPU machine has and this one has not."""

    def find_spec(self, name, _path=None, _target=None):
        compiled = name.startswith("vllm._") and name.endswith("_C")
        third_party = name.startswith("vllm.third_party.") and "triton_kernels" not in name
        if name.split(".")[0] in PACKAGES or compiled or third_party:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__, module.__version__, module.__file__ = [], "0.6.99", "pretended"
        module.__getattr__ = hollow_attribute
        return module

    def exec_module(self, module):
        pass


def pretend(name, capability, memory_bytes, triton):
    """Have this process see eight GPUs of that name, (major, minor) capability and size; sets vLLM's platform."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # triton then puts up with having no driver
    sys.path.insert(0, triton)
    for each in COMPILED:
        _module(each)
    for each in HOLLOW:
        _hollow(each)
    _torch(name, capability, memory_bytes)
    _operators()
    _platform(name, capability, memory_bytes)


def _torch(name, capability, memory_bytes):
    import torch

    torch.version.cuda = RUNTIME
    properties = types.SimpleNamespace(
        name=name, major=capability[0], minor=capability[1], multi_processor_count=MULTIPROCESSORS,
        total_memory=memory_bytes, is_integrated=False, shared_memory_per_block_optin=232_448, warp_size=32,
        L2_cache_size=50 << 20, regs_per_multiprocessor=65_536, max_threads_per_multi_processor=2048, gcnArchName="",
    )  # fmt: skip
    nothing = Nothing()
    cuda = {
        "Stream": Nothing, "Event": Nothing, "current_stream": nothing, "synchronize": nothing,
        "stream": lambda *_, **__: nothing, "current_device": lambda: 0,
        "get_device_capability": lambda *_, **__: capability, "get_device_name": lambda *_, **__: name,
        "get_device_properties": lambda *_, **__: properties,
    }  # fmt: skip
    accelerator = {
        "current_device_index": lambda: 0, "device_count": lambda: GPUS, "is_available": lambda: True,
        "current_accelerator": lambda *_, **__: torch.device("cuda"),
        **dict.fromkeys(("empty_cache", "synchronize", "reset_peak_memory_stats", "set_device_index"), nothing),
    }  # fmt: skip
    for module, changes in ((torch.cuda, cuda), (torch.accelerator, accelerator)):
        for attribute, value in changes.items():
            setattr(module, attribute, value)


def _operators():
    """Operators that only a CUDA build registers: asked for support they say yes, the others do nothing."""
    import torch._ops

    registered = torch._ops._OpNamespace.__getattr__

    def found(namespace, name):
        try:
            return registered(namespace, name)
        except AttributeError:
            if "support" in name:
                return lambda *_, **__: True
            if name.startswith("__") or not Finder.placed:
                raise
            return Nothing()

    torch._ops._OpNamespace.__getattr__ = found


def _platform(name, capability, memory_bytes):
    import vllm.platforms

    vllm.platforms.vllm_version_matches_substr = lambda _: False  # the package's version says "cpu"
    from vllm.platforms import cuda, interface

    answers = {
        "get_device_capability": interface.DeviceCapability(*capability), "get_device_name": name,
        "get_device_uuid": "GPU-0", "get_device_total_memory": memory_bytes, "device_count": GPUS,
        "is_fully_connected": True, "num_compute_units": MULTIPROCESSORS, "is_integrated_gpu": False,
        "is_pin_memory_available": False, "is_arch_support_pdl": capability[0] >= 9,
        "import_kernels": None, "log_warnings": None,
    }  # fmt: skip
    methods = {method: _answering(answer) for method, answer in answers.items()}
    vllm.platforms._current_platform = type("PretendedCuda", (cuda.CudaPlatformBase,), methods)()


def _answering(answer):
    return classmethod(lambda *_, **__: answer)


Finder.placed = False


def complete():
    """Once vLLM is imported: packages of GPU machines can be, and FlashInfer is there as it is in vLLM's image."""
    if Finder.placed:
        return
    Finder.placed = True
    sys.meta_path.append(Finder())
    from vllm.utils import flashinfer

    for name in dir(flashinfer):
        if name.startswith("has_flashinfer") or name == "is_flashinfer_available":
            original = getattr(flashinfer, name)
            for module in list(sys.modules.values()):
                if getattr(module, name, None) is original:
                    setattr(module, name, lambda *_, **__: True)
    flashinfer.has_nvidia_artifactory = lambda *_, **__: True
