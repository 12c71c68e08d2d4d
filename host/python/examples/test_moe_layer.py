"""An MoE layer as code for Ascend NPUs has it, against plain torch: python -m moecl.torch_npu -m pytest test_moe_layer.py"""
import pytest
import torch
import torch_npu

TOKENS, EXPERTS, TOP_K, HIDDEN, INNER = 12, 8, 2, 64, 32


def moe_layer(x, logits, w1, w2, scale1=None, scale2=None):
    """w1 [E, H, 2I], w2 [E, I, H]; with scales [E, N] they are int8, and so are the rows."""
    weights, ids, _ = torch_npu.npu_moe_gating_top_k_softmax(logits, k=TOP_K)
    rows, index, counts, row_scale = torch_npu.npu_moe_init_routing_v2(
        x, ids, active_num=x.shape[0] * TOP_K, expert_num=EXPERTS, expert_tokens_num_type=1, expert_tokens_num_flag=True,
        active_expert_range=[0, EXPERTS], quant_mode=-1 if scale1 is None else 1)
    how = dict(group_list=counts, group_list_type=1, group_type=0, split_item=2)
    if scale1 is None:
        rows = torch_npu.npu_grouped_matmul([rows], [w1], **how)[0]
        rows = torch_npu.npu_grouped_matmul([torch_npu.npu_swiglu(rows)], [w2], **how)[0]
    else:
        rows = torch_npu.npu_grouped_matmul([rows], [w1], scale=[scale1], per_token_scale=[row_scale], output_dtype=x.dtype, **how)[0]
        rows, row_scale = torch_npu.npu_dynamic_quant(torch_npu.npu_swiglu(rows))
        rows = torch_npu.npu_grouped_matmul([rows], [w2], scale=[scale2], per_token_scale=[row_scale], output_dtype=x.dtype, **how)[0]
    return torch_npu.npu_moe_token_unpermute(rows, index, weights)


def plain(x, logits, w1, w2):
    scores, ids = logits.float().softmax(-1).topk(TOP_K, -1)
    out = torch.zeros(TOKENS, HIDDEN)
    for token in range(TOKENS):
        for score, expert in zip(scores[token], ids[token]):
            gate, up = (x[token].float() @ w1[expert]).chunk(2)
            out[token] += score * ((torch.nn.functional.silu(gate) * up) @ w2[expert])
    return out


@pytest.mark.parametrize("int8", [False, True])
def test_moe_layer(int8):
    torch.manual_seed(1)
    device = torch.npu.current_device()
    x, logits = torch.randn(TOKENS, HIDDEN, device=device).bfloat16(), torch.randn(TOKENS, EXPERTS, device=device).bfloat16()
    w1, w2 = torch.randn(EXPERTS, HIDDEN, 2 * INNER) / 8, torch.randn(EXPERTS, INNER, HIDDEN) / 6
    if int8:
        scale1, scale2 = ((w.abs().amax(1) / 127).bfloat16() for w in (w1, w2))
        code1, code2 = (torch.round(w / s[:, None].float()).clamp(-127, 127).to(torch.int8) for w, s in ((w1, scale1), (w2, scale2)))
        out = moe_layer(x, logits, code1, code2, scale1, scale2)
        w1, w2 = code1 * scale1[:, None].float(), code2 * scale2[:, None].float()
    else:
        w1, w2 = w1.bfloat16(), w2.bfloat16()
        out = moe_layer(x, logits, w1, w2)
        w1, w2 = w1.float(), w2.float()
    torch.testing.assert_close(out.float(), plain(x, logits, w1, w2), rtol=0.05, atol=0.02)
