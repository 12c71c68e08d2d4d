"""Writes TORCH_NPU.md, which lists what the stand-in has, from its functions: `python -m moecl.torch_npu --page`."""
from __future__ import annotations

import inspect
import re
from typing import Any, Callable

HEAD = """# The stand-in for torch_npu

Code for Ascend NPUs runs on a CPU, with the numbers of the NPU's operators. Written by `python -m moecl.torch_npu --page`; a test compares it.

    python -m moecl.torch_npu SCRIPT [ARGUMENTS]        # or -m MODULE: with `torch_npu` installed
    python -m moecl.torch_npu -m pytest tests           # so a test suite needs no change

`import moecl.torch_npu; moecl.torch_npu.install()`, before the code under test is imported, does the same. torch is the caller's (tried: 2.13); tensors are those of its CPU.

- Names: `torch_npu.npu_*`, which are `torch.ops.npu.*` too, and `torch.ops._C_ascend.*`, below. Every other name raises NotImplementedError and says what is near it; `hasattr` says that there is none.
- Devices: `"npu"`, `"npu:0"` and `torch.npu.current_device()` are the CPU wherever torch makes or moves a tensor; the tensor says that it is on the CPU. Streams and events are there, and everything has completed when a call returns.
- `torch.distributed`: the backend `"hccl"`, for processes of one machine, by `file://`, `tcp://` or `env://`. Every rank gets the same bits: sums are of float32 in order of rank. `get_hccl_comm_name` names a group for moe_distribute_*.
- moe_distribute_* of processes: each process does its own rank's work; rows go by memory that the processes share. `npu_mm_reduce_scatter_base` and the fused operators are made of the same parts.
- `moecl.torch_npu.run_ranks(4, function)` calls `function(group_name, rank)` in a thread for each rank, where a test needs moe_distribute_* and no processes.
- Outputs are defined where the operator defines them; other rows are old memory, as on the device. The empty tensor stands for an output that a call does not have.
- `torch.histc` takes whole numbers, as on an NPU.
- Of the 160 unit tests that vllm-ascend 0.23.0 has for its MoE and EPLB files, 106 pass without operator mocks, 19 skip themselves, 35 need vllm's own classes: [each](../../tests/python/ascend/unit_tests.txt).

The operators compute on moecl's default device: a CPU by PoCL. *Exact* is: the bits that the documents and the test references of the operators say (none was recorded on a device).

"""

RESERVED = "elastic_info: reserved on all devices"
WIRES = "comm_quant_mode 0, 2, 3 (MX e5m2) and 4 (MX e4m3), also with hierarchy"
# For functions that are more than one operator of moecl: what is exact, what is approximated, what is refused.
ABOUT: dict[str, tuple[str, str, str]] = {
    "npu_moe_init_routing_v2": ("all of OPERATORS.md; codes with scales of float32 or e8m0; HiFloat8, int4 and fp4 rows are uint8", "", "quant_mode 10; quant_mode of rows that are codes"),
    "npu_moe_token_permute": ("all", "", "padded_mode"),
    "npu_moe_token_unpermute": ("all", "", ""),
    "npu_moe_re_routing": ("all", "", "expert_token_num_type 0, idx_type 1"),
    "npu_dynamic_quant": ("x / (amax / 127), of int4 7, of fp8 448 or 57344; halves to even", "", ""),
    "npu_dynamic_mx_quant": ("all of OPERATORS.md", "", "block_size other than 32"),
    "npu_grouped_matmul": ("int8 and MX codes; float sums are of float32 in moecl's order", "fp8 with real scales: sums and scales in float32", "fp8 with real scales in lists; fp8 x with fp4 antiquant weights; activation_input, tuning_config"),
    "npu_grouped_matmul_swiglu_quant": ("int8 and int4 weights", "", "offset"),
    "npu_grouped_matmul_swiglu_quant_v2": ("int8 and int4 weights", "dequant_mode and quant_mode 2, and fp8: the product and swiglu stay float32, then MX rows, or fp8 rows as npu_dynamic_quant", "swiglu_limit of int8"),
    "npu_clipped_swiglu": ("", "float32, rounded once", "interleaved along another dimension than the last"),
    "npu_fast_gelu": ("", "x * sigmoid(1.702 x) in float32, rounded once", ""),
    "npu_format_cast": ("gives its tensor: a format is an order of the same numbers", "", ""),
    "_npu_group_topk": ("groups by their maximum; scores of others become 0, in place", "", ""),
    "npu_mm_reduce_scatter_base": ("", "each rank's product is rounded to its type, sums are of float32", "other reductions than sum; scales"),
    "npu_moe_distribute_dispatch": ("quant_mode 0 to 5, as the kernel of Ascend 950 rounds", "", ""),
    "npu_moe_distribute_dispatch_v2": ("quant_mode 0 to 5, as the kernel of Ascend 950 rounds; HiFloat8 and fp4 are uint8", "performance_info: the call's time for every peer", RESERVED),
    "npu_moe_distribute_combine": (WIRES.removesuffix(", also with hierarchy"), "", ""),
    "npu_moe_distribute_combine_v2": (WIRES, "performance_info: the call's time for every peer", RESERVED),
    "grouped_matmul_swiglu_quant": ("all of OPERATORS.md", "", ""),
    "grouped_matmul_swiglu_quant_weight_nz": ("as grouped_matmul_swiglu_quant; a format is an order of the same numbers", "", ""),
    "grouped_matmul_swiglu_quant_weight_nz_tensor_list": ("as grouped_matmul_swiglu_quant, of one stack or of a matrix for each expert", "", ""),
    "grouped_matmul_swiglu_quant_v2": ("int8 and int4 weights, with a limit too", "", "a limit with smooth_scale, bias or quant_mode 2"),
    "npu_moe_init_routing_custom": ("as npu_moe_init_routing_v2", "", ""),
    "moe_gating_top_k": ("all of OPERATORS.md", "", "norm_type 2: moe_gating_top_k_hash has it"),
    "moe_gating_top_k_hash": ("as moe_gating_top_k, without a table", "with a table, or norm_type 2: float32, ties to the lower id", "groups with a table or norm_type 2"),
    "npu_dequant_swiglu_quant": ("all of OPERATORS.md", "", ""),
    "npu_swiglu_group_quant": ("", "swiglu rounded to x's type, then as npu_dynamic_mx_quant (quant_mode 2) or amax / 448 for each group_size columns (1)", "quant_mode 0; round_scale and ue8m0_scale with quant_mode 1"),
    "moe_grouped_matmul": ("as npu_grouped_matmul", "", ""),
    "dispatch_gmm_combine_decode": ("as dispatch_ffn_combine; weights in their plain order", "the fused operator's order of sums is not known", "expert_smooth_scales; ranks of shared experts"),
    "dispatch_ffn_combine": ("its parts one after the other: dispatch, product, clamped swiglu, product, combine", "the fused operator's order of sums is not known", "more rows than max_output_size, which the device drops"),
}


def parameters(function: Callable[..., Any]) -> str:
    shown = []
    for parameter in getattr(function, "parameters", None) or inspect.signature(function).parameters.values():
        if parameter.kind == parameter.VAR_KEYWORD:
            continue
        default = "" if parameter.default is parameter.empty else f"={parameter.default if parameter.default is None else repr(parameter.default)}"
        shown.append(parameter.name + default.replace("torch.float8_e4m3fn", "float8_e4m3fn"))
    return ", ".join(shown)


def row(name: str, function: Callable[..., Any], about: dict[str, tuple[str, str, str]]) -> str:
    if name in about:
        exact, approximated, refused = about[name]
    else:
        text = re.sub(r"\s+", " ", inspect.getdoc(function) or "")
        exact, approximated = "all of OPERATORS.md", ""
        refused = "; ".join(re.findall(r"Refused: (.*?): .*?\.(?= Refused:|$)", text))
    return f"| `{name}` | {exact} | {approximated} | {refused} |\n"


def page() -> str:
    """The page's text."""
    from moecl.torch_npu import _custom, _operators

    text = HEAD
    for title, functions in (("torch_npu", _operators.functions()), ("torch.ops._C_ascend", _custom.functions())):
        known = {name: about for name, about in ABOUT.items() if name in functions}
        text += f"## {title}\n\n| operator | exact | approximated | refused |\n| --- | --- | --- | --- |\n"
        text += "".join(row(name, functions[name], known) for name in sorted(functions)) + "\n"
        text += "Their parameters:\n\n"
        for name in sorted(functions):
            listed = f"- `{name}`:"
            line = listed
            for item in parameters(functions[name]).split(", "):
                if len(line) + len(item) > 230:
                    text += line + "\n"
                    line = " "
                line += f" {item},"
            text += line.rstrip(",") + "\n"
        text += "\n"
    return text.rstrip("\n") + "\n"
