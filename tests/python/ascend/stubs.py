"""vllm without vllm: as much of it as vllm-ascend's MoE files ask for. vllm-ascend's files themselves are untouched, but for
packages whose __init__ imports all of vllm: those are skipped (SKIPPED), and its Triton kernels.

Every module of vllm exists, and every name in it is an empty class, but for those that `install` gives a meaning.
"""
import enum
import importlib.abc
import importlib.machinery
import logging
import sys
import types

SKIPPED = ("vllm_ascend", "vllm_ascend.ops", "vllm_ascend.device", "vllm_ascend.quantization", "vllm_ascend.quantization.methods",
           "vllm_ascend.distributed", "vllm_ascend.ops.fused_moe", "vllm_ascend.eplb", "vllm_ascend.eplb.core")
STUBBED = ("vllm", "vllm_ascend.ops.triton", "vllm_ascend._build_info", "triton", "regex")


class Named(type):
    """A class that has every name too."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return empty_class(name)


def empty_class(name):
    return Named(name, (), {"__init__": lambda self, *_, **__: None})


class Empty(types.ModuleType):
    """Has every name."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = empty_class(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, release):
        self.release = release

    def find_spec(self, name, path=None, target=None):
        if any(name == stub or name.startswith(stub + ".") for stub in STUBBED):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        if name in SKIPPED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        if spec.name not in SKIPPED:
            return Empty(spec.name)
        module = types.ModuleType(spec.name)
        module.__path__ = [str(self.release.joinpath(*spec.name.split(".")))]
        return module

    def exec_module(self, module):
        pass


class Activation(enum.Enum):
    SILU = "silu"
    GELU = "gelu"
    GELU_TANH = "gelu_tanh"
    SWIGLUOAI = "swigluoai"
    SWIGLUSTEP = "swiglustep"


class Group:
    """vllm's GroupCoordinator, over a process group."""

    def __init__(self, ranks, device_group, rank):
        self.ranks, self.device_group = list(ranks), device_group
        self.world_size, self.rank_in_group = len(self.ranks), self.ranks.index(rank)

    def all_gather(self, tensor, dim=0):
        import torch

        parts = [torch.empty_like(tensor) for _ in self.ranks]
        torch.distributed.all_gather(parts, tensor, group=self.device_group)
        return torch.cat(parts, dim)

    def reduce_scatter(self, tensor, dim=0):
        import torch

        assert dim == 0
        out = tensor.new_empty(tensor.shape[0] // self.world_size, *tensor.shape[1:])
        torch.distributed.reduce_scatter_tensor(out, tensor, group=self.device_group)
        return out


def install(release, version, generation, groups, context):
    """groups: ep, tp, dp and one of this rank alone (pcp). context: what get_forward_context gives."""
    import torch  # noqa: F401

    sys.meta_path.insert(0, Finder(release))
    import re

    import vllm
    import vllm_ascend._build_info

    sys.modules["regex"] = re
    vllm.__version__ = version
    vllm_ascend._build_info.__device_type__ = generation
    import vllm.config
    import vllm.distributed
    import vllm.distributed.parallel_state as state
    import vllm.envs
    import vllm.forward_context
    import vllm.logger
    import vllm.model_executor.layers.fused_moe.activation as activation
    import vllm.triton_utils

    space = types.SimpleNamespace
    logger = logging.getLogger("vllm")
    logger.info_once = logger.warning_once = logger.debug
    vllm.logger.logger, vllm.logger.init_logger = logger, lambda name: logger
    vllm.triton_utils.HAS_TRITON = False
    vllm.envs.VLLM_USE_V2_MODEL_RUNNER = False
    vllm.envs.VLLM_BATCH_INVARIANT = False
    activation.MoEActivation = Activation
    vllm.forward_context.get_forward_context = lambda: context
    for module in (state, vllm.distributed):
        for kind in groups:
            setattr(module, f"get_{kind}_group", lambda kind=kind: groups[kind])
        module.get_tensor_model_parallel_world_size = lambda: groups["tp"].world_size
        module.get_tensor_model_parallel_rank = lambda: groups["tp"].rank_in_group
    config = space(
        scheduler_config=space(max_num_seqs=16, decode_max_num_seqs=16, max_num_batched_tokens=64),
        compilation_config=space(cudagraph_capture_sizes=[16], max_cudagraph_capture_size=16), speculative_config=None,
        parallel_config=space(tensor_parallel_size=groups["tp"].world_size, enable_expert_parallel=True),
        kv_transfer_config=None, additional_config=None, model_config=space(hf_text_config=space()))
    vllm.config.get_current_vllm_config = lambda: config

    import vllm_ascend.ascend_config
    import vllm_ascend.utils

    settings = space(multistream_overlap_gate=False, enable_mc2_hierarchy_comm=False, enable_sp_by_pass=False,
                     enable_flashcomm1=False, recompute_scheduler_enable=False, enable_fused_mc2=0, eplb_config=space())
    vllm_ascend.ascend_config._ASCEND_CONFIG = settings
    vllm_ascend.ascend_config.get_ascend_config = lambda: settings
    vllm_ascend.utils.get_ascend_config = lambda: settings
    vllm_ascend.utils._IS_MOE_MODEL = True
    vllm_ascend.utils._CUSTOM_OP_ENABLED = True
    vllm_ascend.utils._WEIGHT_PREFETCH_METHOD = space(maybe_prefetch_moe_weight_preprocess=lambda *_: None,
                                                      maybe_prefetch_moe_weight_postprocess=lambda *_: None)
    import vllm_ascend.ascend_forward_context as forward
    import vllm_ascend.distributed.parallel_state as parallel

    forward._mc2_tokens_capacity = 16 * groups["tp"].world_size
    parallel._MC2 = groups["ep"]
    return config
