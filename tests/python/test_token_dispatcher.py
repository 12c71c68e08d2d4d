"""Experts of one's own between dispatch and combine, over every strategy, against NumPy."""
import gc

import numpy
import pytest

import moecl

E, H, K = 5, 32, 2
TOKENS = [3, 0, 4]
ROWS, WEIGHTED, SUMS = 0, 1, 2


def problem(ids_dtype="i4"):
    """Tokens, ids and weights of all ranks; two choices of a token are never one expert, and one choice is none."""
    random = numpy.random.default_rng(5)
    x = random.standard_normal((sum(TOKENS), H)).astype("f4")
    ids = numpy.stack([random.permutation(E)[:K] for _ in range(len(x))]).astype(ids_dtype)
    ids[2, 1] = -1
    return x, ids, random.random((len(x), K)).astype("f4")


def expected(x, ids, weights):
    """Expert e multiplies by e + 1."""
    return ((numpy.where(ids < 0, 0, ids + 1.0) * weights).sum(1)[:, None] * x).astype("f8")


def experts(rows):
    """What this rank's experts make of the rows that came."""
    out = numpy.empty(rows.x.shape, "f4")
    begin = 0
    for expert, end in enumerate(rows.row_ends):
        plain = rows.x[begin:end].astype("f4")
        scale = 1 if rows.x_scale is None else rows.x_scale[begin:end, None]
        out[begin:end] = plain * scale * (rows.first_expert + expert + 1)
        begin = end
    return out


def over_ranks(given, strategy, compute=experts, **options):
    x, ids, weights = given
    ends = numpy.cumsum([0, *TOKENS])

    def rank(communicator):
        mine = slice(ends[communicator.rank], ends[communicator.rank + 1])
        dispatcher = moecl.TokenDispatcher(communicator, hidden=H, experts=E, top_k=K, strategy=strategy, **options)
        for _ in range(2):
            rows = dispatcher.dispatch(x[mine], ids[mine], None if weights is None else weights[mine])
            out = dispatcher.combine(compute(rows))
        return out

    return numpy.concatenate(moecl.RankGroup(len(TOKENS)).run(rank))


@pytest.mark.parametrize("strategy", [1, 2, 3, 4])
@pytest.mark.parametrize("ids_dtype", ["i4", "i8"])
def test_every_strategy(strategy, ids_dtype):
    given = problem(ids_dtype)
    numpy.testing.assert_allclose(over_ranks(given, strategy), expected(*given), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("strategy", [1, 2, 3, 4])
def test_without_weights(strategy):
    x, ids, _ = problem()
    numpy.testing.assert_allclose(over_ranks((x, ids, None), strategy), expected(x, ids, numpy.ones(ids.shape)), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("strategy", [1, 2, 3])
def test_rows_travel_as_codes(strategy):
    given = problem()
    off = over_ranks(given, strategy, wire=1) - expected(*given)
    assert 0 < abs(off).max() < 5 * numpy.abs(given[0]).max() * 2 / 254 * 2


@pytest.mark.parametrize("strategy", [1, 2, 3, 4])
def test_experts_that_weight_and_sum(strategy):
    given = problem()

    def weighted(rows):
        return experts(rows) * rows.weights[:, None]

    def summed(rows):
        each = weighted(rows)
        return numpy.stack([each[of[of >= 0]].sum(0) for of in rows.slot_rows]) if len(rows.slot_rows) else numpy.empty((0, H), "f4")

    for compute, output in ((weighted, WEIGHTED), (summed, SUMS)):
        out = over_ranks(given, strategy, compute, expert_output=output)
        numpy.testing.assert_allclose(out, expected(*given), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("strategy", [1, 2, 3, 4])
def test_batched(strategy):
    given = problem()

    def compute(rows):
        room = rows.x.shape[1]
        assert room == sum(TOKENS)
        counts = numpy.diff(rows.row_ends, prepend=0)
        out = numpy.full(rows.x.shape, numpy.nan, "f4")
        for expert, count in enumerate(counts):
            out[expert, :count] = rows.x[expert, :count] * (rows.first_expert + expert + 1)
        return out

    out = over_ranks(given, strategy, compute, batched=1, rows_per_expert=sum(TOKENS))
    numpy.testing.assert_allclose(out, expected(*given), rtol=1e-6, atol=1e-6)


def test_torch_tensors_come_back_as_such():
    torch = pytest.importorskip("torch")
    x, ids, weights = problem()

    def rank(communicator):
        dispatcher = moecl.TokenDispatcher(communicator, hidden=H, experts=E, top_k=K, strategy=1, dtype=torch.bfloat16)
        rows = dispatcher.dispatch(torch.tensor(x).bfloat16(), torch.tensor(ids), torch.tensor(weights))
        assert rows.x.dtype == torch.bfloat16 and isinstance(rows.row_ends, torch.Tensor)
        factors = torch.repeat_interleave(torch.arange(E) + 1.0, torch.diff(rows.row_ends, prepend=torch.zeros(1, dtype=torch.int32)))
        return dispatcher.combine(rows.x.float() * factors[:, None])

    out, = moecl.RankGroup(1).run(rank)
    numpy.testing.assert_allclose(out, expected(torch.tensor(x).bfloat16().float().numpy(), ids, weights), rtol=1e-5, atol=1e-5)


def test_a_dispatcher_that_goes_before_its_combine_gives_the_tokens_up(monkeypatch):
    released = []
    release = moecl._runtime.Shared.release
    monkeypatch.setattr(moecl._runtime.Shared, "release", lambda shared: (released.append(len(shared.memories)), release(shared)))
    x, ids, weights = problem()

    def rank(communicator):
        dispatcher = moecl.TokenDispatcher(communicator, hidden=H, experts=E, top_k=K, strategy=1)
        dispatcher.dispatch(x, ids, weights)
        assert not released

    moecl.RankGroup(1).run(rank)
    gc.collect()
    assert released == [3]


def test_refusals():
    x, ids, weights = problem()

    def rank(communicator):
        dispatcher = moecl.TokenDispatcher(communicator, hidden=H, experts=E, top_k=K, strategy=1)
        with pytest.raises(moecl.InvalidArgument, match="combine: expected a dispatch before"):
            dispatcher.combine(x)
        with pytest.raises(moecl.InvalidArgument, match=r"x: expected \[T, 32\] float32, got \[7, 31\] float32"):
            dispatcher.dispatch(x[:, 1:].copy(), ids)
        with pytest.raises(moecl.InvalidArgument, match=r"ids: expected \[7, 2\] int32 or int64, got \[7, 2\] float32"):
            dispatcher.dispatch(x, weights)
        with pytest.raises(moecl.InvalidArgument, match=r"tokens_of_ranks: expected 1 numbers, got 2"):
            dispatcher.dispatch(x, ids, tokens_of_ranks=[1, 2])
        with pytest.raises(moecl.InvalidArgument, match="asks for expert [56], which does not exist"):
            dispatcher.dispatch(x, ids + E)
        with pytest.raises(moecl.InvalidArgument, match="top_k"):
            moecl.TokenDispatcher(communicator, hidden=H, experts=E, top_k=E + 1, strategy=1)

    moecl.RankGroup(1).run(rank)
