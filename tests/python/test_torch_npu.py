"""The stand-in for torch_npu: its names, devices and process groups, and operators that are made of others, by formulas."""
import os
import pathlib
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

import moecl.torch_npu  # noqa: E402
from moecl.torch_npu import _page  # noqa: E402

PAGE = pathlib.Path(__file__).parents[2] / "host" / "python" / "TORCH_NPU.md"
HERE = pathlib.Path(__file__).parent
E8M0 = torch.float8_e8m0fnu


@pytest.fixture(scope="module")
def torch_npu():
    return moecl.torch_npu.install()


@pytest.fixture
def group(torch_npu, tmp_path_factory):
    """A group of this process alone."""
    if not torch.distributed.is_initialized():
        store = tmp_path_factory.mktemp("group") / "store"
        torch.distributed.init_process_group("hccl", init_method=f"file://{store}", rank=0, world_size=1)
    return torch.distributed.group.WORLD._get_backend(torch.device("npu")).get_hccl_comm_name(0)


def random(*shape, dtype=torch.bfloat16, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def mx_values(codes, scale):
    """Codes [N, H] with scales [N, S] of e8m0 bytes."""
    factors = torch.exp2(scale.view(torch.uint8).reshape(scale.shape[0], -1).float() - 127)
    return codes.float() * factors.repeat_interleave(32, 1)[:, :codes.shape[1]]


def test_page_is_up_to_date():
    assert PAGE.read_text() == _page.page(), "write it anew: python -m moecl.torch_npu --page > TORCH_NPU.md"


def test_other_names_say_what_is_near(torch_npu):
    import torch_npu as imported

    assert imported is torch_npu and torch.ops.npu.npu_swiglu is torch_npu.npu_swiglu
    assert not hasattr(torch_npu, "npu_fusion_attention")
    with pytest.raises(NotImplementedError, match="torch_npu.npu_swiglu_v2 is not in moecl's stand-in.*npu_swiglu"):
        torch_npu.npu_swiglu_v2(random(2, 4))
    with pytest.raises(NotImplementedError, match="torch.ops._C_ascend.mla_preprocess is not"):
        torch.ops._C_ascend.mla_preprocess()
    with pytest.raises(TypeError, match="unexpected keyword argument 'axis'"):
        torch_npu.npu_swiglu(random(2, 4), axis=1)


def test_devices_named_npu_are_the_cpu(torch_npu):
    for device in ("npu", "npu:0", torch.device("npu"), torch.npu.current_device()):
        assert torch.zeros(2, device=device).device.type == "cpu"
        assert torch.ones(2).to(device).new_empty(3, device=device).device.type == "cpu"
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        event = stream.record_event()
    torch.npu.current_stream().wait_event(event)
    torch.npu.synchronize()
    assert event.query() and torch.npu.device_count() == 1
    torch.manual_seed(3)
    first = torch.rand(2, device="npu")
    torch.npu.manual_seed(3)
    assert torch.equal(first, torch.rand(2))
    assert torch.histc(torch.tensor([0, 2, 2, 5], dtype=torch.int32), 8, 0, 8).tolist() == [1, 0, 2, 0, 0, 1, 0, 0]


def test_fp8_rows_travel_with_their_scales(torch_npu):
    x, ids = random(6, 64).to(torch.float8_e4m3fn), torch.tensor([[1], [0], [2], [1], [0], [2]], dtype=torch.int32)
    scale = torch.arange(12, dtype=torch.uint8).view(6, 2).view(E8M0)
    rows, index, counts, scales = torch_npu.npu_moe_init_routing_v2(
        x, ids, scale=scale, active_num=6, expert_num=3, expert_tokens_num_type=1, expert_tokens_num_flag=True,
        active_expert_range=[0, 3], x_dtype=torch.float8_e4m3fn)
    order = torch.argsort(ids.flatten(), stable=True)
    assert rows.dtype == x.dtype and scales.dtype == E8M0
    assert torch.equal(rows.view(torch.uint8), x.view(torch.uint8)[order])
    assert torch.equal(scales.view(torch.uint8), scale.view(torch.uint8)[order])
    assert counts.tolist() == [2, 2, 2] and torch.equal(index.long(), torch.argsort(order))
    moved, _ = torch_npu.npu_moe_token_permute(x, ids)
    assert torch.equal(moved.view(torch.uint8), x.view(torch.uint8)[order])


@pytest.mark.parametrize("dtype, largest", [(torch.float8_e4m3fn, 448), (torch.float8_e5m2, 57344)])
def test_dynamic_quant_to_fp8(torch_npu, dtype, largest):
    x = random(5, 48)
    x[2] = 0
    codes, scale = torch_npu.npu_dynamic_quant(x, dst_type=dtype)
    expected = x.float().abs().amax(1) / largest
    assert codes.dtype == dtype and torch.equal(scale, expected)
    assert codes[2].float().abs().sum() == 0
    kept = [0, 1, 3, 4]
    assert torch.equal(codes[kept].float(), (x.float() / expected[:, None])[kept].to(dtype).float())


def test_activations(torch_npu):
    x = random(7, 32, dtype=torch.float32, seed=2) * 4
    g, u = x[:, ::2].double().clamp(max=7), x[:, 1::2].double().clamp(-7, 7)
    torch.testing.assert_close(torch_npu.npu_clipped_swiglu(x).double(), g * torch.sigmoid(1.702 * g) * (u + 1), rtol=1e-6, atol=1e-6)
    g, u = x[:, :16].double().clamp(max=3), x[:, 16:].double().clamp(-3, 3)
    halves = torch_npu.npu_clipped_swiglu(x, alpha=1.0, limit=3.0, bias=0.0, interleaved=False)
    torch.testing.assert_close(halves.double(), g * torch.sigmoid(g) * u, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(torch_npu.npu_fast_gelu(x).double(), x.double() / (1 + torch.exp(-1.702 * x.double())), rtol=1e-6, atol=1e-6)
    assert torch_npu.npu_format_cast(x, 29) is x


def test_group_topk_in_place(torch_npu):
    scores = torch.tensor([[0.1, 0.9, 0.2, 0.3, 0.8, 0.1]])
    torch_npu._npu_group_topk(scores, k=1, group_num=3)
    assert torch.equal(scores, torch.tensor([[0.1, 0.9, 0.0, 0.0, 0.0, 0.0]]))


def test_swiglu_group_quant(torch_npu):
    x = random(4, 256) * 5
    gate, up = x.float().chunk(2, -1)
    activated = (torch.nn.functional.silu(gate.clamp(max=7)) * up.clamp(-7, 7)).bfloat16().float()
    codes, scale, origin = torch.ops._C_ascend.npu_swiglu_group_quant(x, None, None, dst_type=torch.float8_e4m3fn, quant_mode=2, clamp_value=7.0)
    assert scale.shape == (4, 2, 2) and origin.numel() == 0
    torch.testing.assert_close(mx_values(codes, scale), activated, rtol=2**-4, atol=0.02)
    codes, scale, origin = torch.ops._C_ascend.npu_swiglu_group_quant(x, None, None, quant_mode=1, group_size=64, clamp_value=7.0, output_origin=True)
    torch.testing.assert_close(scale, origin.float().view(4, 2, 64).abs().amax(-1) / 448, rtol=0, atol=0)
    torch.testing.assert_close(codes.float() * scale.repeat_interleave(64, 1), activated, rtol=2**-4, atol=0.02)


def test_gating_by_token_id_and_by_sqrt_softplus(torch_npu):
    logits, table = random(3, 8, dtype=torch.float32), torch.tensor([[5, 1], [0, 7]], dtype=torch.int32)
    scores = torch.nn.functional.softplus(logits.double()).sqrt()
    weights, ids, _ = torch.ops._C_ascend.moe_gating_top_k_hash(logits, 2, input_ids=torch.tensor([1, 0, 1]), tid2eid=table, norm_type=2)
    assert ids.tolist() == [[0, 7], [5, 1], [0, 7]]
    chosen = scores.gather(1, ids.long())
    torch.testing.assert_close(weights.double(), chosen / chosen.sum(1, keepdim=True), rtol=1e-5, atol=1e-6)
    weights, ids, out = torch.ops._C_ascend.moe_gating_top_k_hash(logits, 3, norm_type=2, routed_scaling_factor=2.5, out_flag=True)
    best = scores.topk(3, -1)
    assert torch.equal(ids.long(), best.indices)
    torch.testing.assert_close(weights.double(), 2.5 * best.values / best.values.sum(1, keepdim=True), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(out.double(), scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("size, mode", [(1, 0), (2, 0), (2, 1), (4, 1)])
@pytest.mark.parametrize("biased", [False, True])
def test_gating_of_small_groups(torch_npu, size, mode, biased):
    logits = random(5, 4 * size, dtype=torch.float32, seed=8)
    bias = random(4 * size, dtype=torch.float32, seed=9) if biased else None
    weights, ids, out = torch.ops._C_ascend.moe_gating_top_k(
        logits, k=2, k_group=2, group_count=4, group_select_mode=mode, renorm=0, norm_type=1, out_flag=True,
        routed_scaling_factor=1.0, eps=1e-20, bias_opt=bias)
    scores = logits.double().sigmoid()
    groups = (scores + bias.double() if biased else scores).view(5, 4, size)
    of_group = groups.topk(2, -1).values.sum(-1) if mode else groups.amax(-1)
    kept = torch.zeros(5, 4, dtype=torch.bool).scatter_(1, of_group.topk(2, -1).indices, True)
    best = groups.masked_fill(~kept[..., None], -1e9).flatten(1).topk(2, -1).indices
    chosen = scores.gather(1, best)
    assert torch.equal(ids.long(), best)
    torch.testing.assert_close(weights.double(), chosen / chosen.sum(1, keepdim=True), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(out.double(), scores, rtol=1e-5, atol=1e-6)


IDS = torch.tensor([[0, 2], [1, 0], [2, 3], [3, 1], [0, 1], [2, 0]], dtype=torch.int32)
SORTED = torch.argsort(IDS.flatten(), stable=True)


def dispatch(torch_npu, group, x, **options):
    rows, scales, _, counts, _, _, weights = torch_npu.npu_moe_distribute_dispatch_v2(x, IDS, group, 1, 0, 4, tp_world_size=1, **options)
    assert counts.tolist() == [4, 3, 3, 2]
    return rows[:12], scales[:12], weights[:12]


@pytest.mark.parametrize("dtype, largest", [(torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)])
def test_dispatched_fp8_rows_by_row_and_by_group(torch_npu, group, dtype, largest):
    x, smooth = random(6, 256), torch.rand(4, 256) + 0.5
    source = x.float()[SORTED // 2] * smooth[IDS.flatten()[SORTED].long()]
    rows, scales, weights = dispatch(torch_npu, group, x, scales=smooth, quant_mode=2, y_dtype=dtype, expert_scales=torch.arange(12.0).view(6, 2))
    factor = torch.full((12,), largest) / source.abs().amax(-1)  # a number over a tensor would be its reciprocal, times it
    assert rows.dtype == dtype and torch.equal(scales, torch.ones(12) / factor)
    assert torch.equal(rows.float(), (source * factor[:, None]).to(dtype).float())
    assert torch.equal(weights, SORTED.float())
    rows, scales, _ = dispatch(torch_npu, group, x, scales=smooth, quant_mode=3, y_dtype=dtype)
    amax = source.view(12, 2, 128).abs().amax(-1)
    assert torch.equal(scales, amax * (torch.tensor(1.0) / largest))
    assert torch.equal(rows.float(), (source * (torch.full((12, 2), largest) / amax).repeat_interleave(128, 1)).to(dtype).float())


def test_dispatched_rows_of_given_scales(torch_npu, group):
    x, smooth = random(6, 64), torch.rand(4, 64) + 10
    source, expert = x.float()[SORTED // 2], IDS.flatten()[SORTED].long()
    for scales, factor in ((smooth, smooth[expert]), (smooth[1], smooth[1]), (smooth[0, :1], smooth[0, 0])):
        rows, _, _ = dispatch(torch_npu, group, x, scales=scales, quant_mode=1)
        assert torch.equal(rows.float(), torch.round(source * factor).clamp(-128, 127))
    ones = torch.ones(6, 64, dtype=torch.bfloat16) * torch.tensor([1, 2, 4, -1, 0.25, 256])[:, None]
    rows, _, _ = dispatch(torch_npu, group, ones.bfloat16(), quant_mode=0, y_dtype=290)  # HiFloat8
    assert rows[:, 0].tolist() == torch.tensor([8, 16, 32, 136, 48, 96])[SORTED // 2].tolist()


@pytest.mark.parametrize("dtype, mode", [(torch.float8_e4m3fn, 4), (torch.float8_e5m2, 4), (torch.float8_e4m3fn, 5), (torch.float8_e5m2, 5)])
def test_dispatched_mx_rows(torch_npu, group, dtype, mode):
    x = random(6, 256)
    x[1, :32] = 0
    x[2, :32] *= 1e-7
    source = x.float()[SORTED // 2]
    rows, scales, _ = dispatch(torch_npu, group, x, quant_mode=mode, y_dtype=dtype)
    amax = source.view(12, 8, 32).abs().amax(-1).double()
    if mode == 4:
        exponent = torch.floor(torch.log2(amax)) - (8 if dtype == torch.float8_e4m3fn else 15)
    else:
        exponent = torch.ceil(torch.log2(amax.clamp(min=torch.tensor(1e-4).item()) / torch.finfo(dtype).max))
    exponent = torch.where(amax == 0, -127.0, exponent.clamp(min=-127))
    assert rows.dtype == dtype and torch.equal(scales.view(torch.uint8).double() - 127, exponent)
    wide = (source.double() / torch.exp2(exponent).repeat_interleave(32, 1)).clamp(-torch.finfo(dtype).max, torch.finfo(dtype).max)
    assert torch.equal(rows.float(), wide.to(dtype).float())


def test_codes_travel_with_their_scales(torch_npu, group):
    codes, scales = torch_npu.npu_dynamic_mx_quant(random(6, 128), dst_type=torch.float8_e4m3fn)
    rows, moved, _ = dispatch(torch_npu, group, codes, scales=scales)
    assert rows.dtype == codes.dtype and torch.equal(rows.view(torch.uint8), codes.view(torch.uint8)[SORTED // 2])
    assert torch.equal(moved.view(torch.uint8), scales.flatten(1).view(torch.uint8)[SORTED // 2])
    packed = torch.arange(6 * 16, dtype=torch.int32).view(6, 16)
    rows, moved, _ = dispatch(torch_npu, group, packed, scales=torch.arange(6.0))
    assert torch.equal(rows, packed[SORTED // 2]) and torch.equal(moved, (SORTED // 2).float())


def test_routed_rows_of_the_newer_generation(torch_npu):
    x = random(6, 300)
    source = x.float()[SORTED // 2]
    padded = torch.nn.functional.pad(source, (0, 84)).view(12, 3, 128)

    def routed(mode, **options):
        rows, _, _, scales = torch_npu.npu_moe_init_routing_v2(x, IDS, expert_num=4, expert_tokens_num_type=1, expert_tokens_num_flag=True,
                                                               quant_mode=mode, **options)
        return rows, scales

    for mode, dtype, largest in ((11, torch.float8_e5m2, 57344.0), (12, torch.float8_e4m3fn, 448.0)):
        rows, scales = routed(mode)
        expected = padded.abs().amax(-1) / largest
        assert scales.shape == (12, 2, 2) and torch.equal(scales.flatten(1), torch.nn.functional.pad(expected, (0, 1)))
        assert torch.equal(rows.float(), (padded / expected[..., None]).flatten(1)[:, :300].to(dtype).float())
    for mode, dtype, largest in ((4, torch.float8_e5m2, 57344.0), (5, torch.float8_e4m3fn, 448.0), (15, torch.float8_e4m3fn, 448.0)):
        rows, scales = routed(mode)
        expected = torch.exp2(torch.ceil(torch.log2(padded.abs().amax(-1).double() / largest))).float()
        assert torch.equal(scales, expected)
        assert torch.equal(rows.float(), (padded / expected[..., None]).flatten(1)[:, :300].to(dtype).float())
    rows, scales = routed(8)
    assert rows.dtype == torch.uint8 and torch.equal(scales, source.abs().amax(-1) / 32768)
    x = random(6, 64)
    rows, scales = routed(13)
    source = x.float()[SORTED // 2]
    codes = torch.round(source / (source.abs().amax(-1, keepdim=True) / 7)).to(torch.int8)
    assert torch.equal(rows, (codes[:, ::2] & 15 | (codes[:, 1::2] & 15) << 4).view(torch.uint8))


def test_fused_layer_is_its_parts(torch_npu, group):
    x, ids = random(5, 64), torch.tensor([[0, 1], [1, 2], [3, 0], [2, 3], [1, 3]], dtype=torch.int32)
    w1, w2, weights = random(4, 64, 64, seed=4) / 8, random(4, 32, 64, seed=5) / 6, torch.rand(5, 2)
    out, counts = torch.empty_like(x), torch.empty(4, dtype=torch.int32)
    torch.ops._C_ascend.dispatch_ffn_combine(x, [w1], [w2], ids, [], [], [], [], weights, group, 64, out, counts)
    expected = torch.zeros(5, 64)
    for token, expert, weight in zip(range(10), ids.flatten().tolist(), weights.flatten().tolist()):
        gate, up = (x[token // 2].float() @ w1[expert].float()).chunk(2)
        expected[token // 2] += weight * ((torch.nn.functional.silu(gate) * up) @ w2[expert].float())
    torch.testing.assert_close(out.float(), expected, rtol=0.02, atol=0.02)
    assert counts.tolist() == [2, 3, 2, 3]
    again, _ = torch.ops._C_ascend.dispatch_gmm_combine_decode(
        x, ids, [w1], [], [w2], [], weights, group_ep=group, ep_rank_size=1, ep_rank_id=0, moe_expert_num=4)
    assert torch.equal(again, out)
    with pytest.raises(NotImplementedError, match="10 rows for max_output_size 9"):
        torch.ops._C_ascend.dispatch_ffn_combine(x, [w1], [w2], ids, [], [], [], [], weights, group, 9, out, counts)


def test_fused_layer_of_int8_weights(torch_npu, group):
    x, ids = random(5, 64), torch.tensor([[0, 1], [1, 2], [3, 0], [2, 3], [1, 3]], dtype=torch.int32)
    weights = torch.rand(5, 2, generator=torch.Generator().manual_seed(6))
    codes = [torch.randint(-127, 128, shape, dtype=torch.int8, generator=torch.Generator().manual_seed(7)) for shape in ((4, 64, 64), (4, 32, 64))]
    scales = [torch.full((4, 64), 0.002), torch.full((4, 64), 0.003)]
    out, counts = torch.empty_like(x), torch.empty(4, dtype=torch.int32)
    torch.ops._C_ascend.dispatch_ffn_combine(x, [codes[0]], [codes[1]], ids, [scales[0]], [scales[1]], [], [], weights, group, 64, out, counts)

    def rows(values):
        scale = values.abs().max() / 127
        return torch.round(values / scale) * scale

    expected = torch.zeros(5, 64)
    for token, expert, weight in zip(range(10), ids.flatten().tolist(), weights.flatten().tolist()):
        gate, up = (rows(x[token // 2].float()) @ codes[0][expert].float() * 0.002).chunk(2)
        expected[token // 2] += weight * (rows(torch.nn.functional.silu(gate) * up) @ codes[1][expert].float() * 0.003)
    torch.testing.assert_close(out.float(), expected, rtol=0.02, atol=0.01 * expected.abs().max().item())


@pytest.mark.parametrize("experts", [1, 3])
@pytest.mark.parametrize("limit", [0.0, 1.5])
def test_lists_of_weights_are_one_stack(torch_npu, experts, limit):
    generator = torch.Generator().manual_seed(12)
    x, weight = (torch.randint(-127, 128, shape, dtype=torch.int8, generator=generator) for shape in ((6, 32), (experts, 32, 64)))
    scale, x_scale = torch.rand(experts, 64, generator=generator) / 100, torch.rand(6, generator=generator) / 10
    ends = torch.tensor([2, 3, 6][-experts:])
    how = dict(x_scale=x_scale, group_list=ends, swiglu_limit=limit)
    codes, row_scale, _ = torch.ops._C_ascend.grouped_matmul_swiglu_quant_weight_nz_tensor_list(x, list(weight), list(scale), **how)
    again, again_scale = torch.ops._C_ascend.grouped_matmul_swiglu_quant_v2(x, [weight], [scale], **how)
    assert torch.equal(row_scale, again_scale) or limit == 0  # without a limit it is the other operator
    assert (codes.int() - again.int()).abs().max() <= 1
    expert = torch.repeat_interleave(torch.arange(experts), torch.diff(ends, prepend=torch.zeros(1, dtype=ends.dtype)))
    product = torch.einsum("mk,mkn->mn", x.double(), weight.double()[expert]) * scale[expert] * x_scale[:, None]
    gate, up = product.chunk(2, 1)
    if limit:
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    expected = torch.nn.functional.silu(gate) * up
    torch.testing.assert_close(row_scale.double(), expected.abs().amax(1) / 127, rtol=1e-5, atol=1e-9)
    assert ((codes * row_scale[:, None]).double() - expected).abs().max() <= 0.51 * row_scale.max()


def test_ranks_that_are_threads(torch_npu):
    def rank(group, number):
        x, weights = random(3 + number, 32, seed=number), torch.rand(3 + number, 2)
        ids = torch.stack([torch.arange(3 + number) % 6, (torch.arange(3 + number) + 1 + number) % 6], 1).int()
        where = dict(group_ep=group, ep_world_size=3, ep_rank_id=number, moe_expert_num=6, global_bs=5 * 3)
        waits = torch.zeros(3, dtype=torch.int64)
        rows, _, assist, counts, received, *_ = torch_npu.npu_moe_distribute_dispatch_v2(x, ids, **where, performance_info=waits)
        assert [wait > 0 for wait in waits] == [peer != number for peer in range(3)]
        out = torch_npu.npu_moe_distribute_combine_v2(rows * (number + 1), ids, assist, received, weights, **where)
        scale = (ids // 2 + 1) * weights  # experts stand two on a rank
        torch.testing.assert_close(out.float(), x.float() * scale.sum(1, keepdim=True), rtol=0.02, atol=0.02)
        product = torch_npu.npu_mm_reduce_scatter_base(torch.ones(3, 32) * (number + 1), torch.ones(32, 4), group, 3)
        assert torch.equal(product, torch.full((1, 4), 32.0 * 6))
        return counts.sum().item()

    assert sum(moecl.torch_npu.run_ranks(3, rank)) == 2 * (3 + 4 + 5)
    with pytest.raises(RuntimeError, match="group 'moecl-threads"):
        moecl.torch_npu.run_ranks(1, lambda group, number: torch_npu.npu_mm_reduce_scatter_base(torch.ones(1, 4), torch.ones(4, 4), group + "x", 1))


def test_a_group_that_is_not_there(torch_npu, group):
    with pytest.raises(RuntimeError, match="group 'no such' is none of this process"):
        torch_npu.npu_moe_distribute_dispatch_v2(random(1, 32), torch.zeros(1, 1, dtype=torch.int32), "no such", 1, 0, 1)


@pytest.mark.parametrize("ranks, by", [(2, "file"), (3, "tcp")])
def test_collectives_of_processes(ranks, by, tmp_path):
    with socket.create_server(("localhost", 0)) as free:
        method = f"file://{tmp_path}/store" if by == "file" else f"tcp://localhost:{free.getsockname()[1]}"
    program = [sys.executable, "-W", "ignore", "-m", "moecl.torch_npu", HERE / "collectives.py"]
    started = [subprocess.Popen([*program, str(rank), str(ranks), method], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, "OMP_NUM_THREADS": "1"}) for rank in range(ranks)]
    try:
        for process in started:
            said, _ = process.communicate(timeout=120)
            assert process.returncode == 0 and "all agree" in said, said
    finally:
        for process in started:
            process.kill()


def test_a_rank_that_does_not_come_is_named(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, datetime, torch.distributed as dist\n"
                      "store = dist.FileStore(sys.argv[1], 2)\n"
                      "from moecl.torch_npu import _hccl\n"
                      "_hccl.HcclGroup(store, 0, 2, datetime.timedelta(seconds=1))\n")
    done = subprocess.run([sys.executable, "-m", "moecl.torch_npu", script, tmp_path / "store"], capture_output=True, text=True, timeout=60)
    assert "hccl: ranks [1] did not come within 1 s" in done.stderr


def test_programs_and_modules_are_run(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, beside, torch_npu\nprint(sys.argv[1:], beside.here, torch_npu.npu_swiglu.__name__)\n")
    (tmp_path / "beside.py").write_text("here = 7\n")
    for how in ([script], ["-m", "script"]):
        done = subprocess.run([sys.executable, "-m", "moecl.torch_npu", *how, "--flag"], cwd=tmp_path, capture_output=True, text=True)
        assert done.stdout == "['--flag'] 7 called\n", done.stderr
    assert subprocess.run([sys.executable, "-m", "moecl.torch_npu"], capture_output=True).returncode == 2
