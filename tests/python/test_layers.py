"""Layers from arrays, over one device and over ranks, against NumPy; a released checkpoint against its golden."""
import os
import pathlib
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from cases import load

import moecl

GOLDENS = pathlib.Path(__file__).parents[1] / "data" / "goldens"
E, T, H, I, K = 6, 9, 16, 8, 2


@pytest.fixture(scope="module")
def model():
    random = numpy.random.default_rng(3)
    weights = {"router": (E, H), "gate_up": (E, 2 * I, H), "down": (E, H, I)}
    return {name: random.standard_normal(shape).astype("f4") for name, shape in weights.items()}


@pytest.fixture(scope="module")
def x():
    return numpy.random.default_rng(4).standard_normal((T, H)).astype("f4")


def moe(model, x):
    """In double precision: softmax over all experts, the best two, silu."""
    model = {name: array.astype("f8") for name, array in model.items()}
    logits = x @ model["router"].T
    scores = numpy.exp(logits) / numpy.exp(logits).sum(1, keepdims=True)
    ids = numpy.argsort(-scores, 1, "stable")[:, :K]
    out = numpy.zeros((len(x), H))
    for token, row in enumerate(x):
        for expert in ids[token]:
            gate, up = numpy.split(model["gate_up"][expert] @ row, 2)
            out[token] += scores[token, expert] * (model["down"][expert] @ (gate / (1 + numpy.exp(-gate)) * up))
    return out, ids


def test_layer_of_arrays(model, x):
    layer = moecl.Layer.create(**model, top_k=K)
    out, ids = layer(x, want=("out", "topk_ids"))
    expected, chosen = moe(model, x)
    numpy.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    numpy.testing.assert_array_equal(numpy.sort(ids), numpy.sort(chosen))
    assert layer.describe()["experts"] == E
    layer.replace(**{**model, "down": 2 * model["down"]}, top_k=K)
    numpy.testing.assert_allclose(layer(x), 2 * expected, rtol=1e-4, atol=1e-4)
    assert layer(x[:0]).shape == (0, H)


def test_given_routing(model, x):
    layer = moecl.Layer.create(gate_up=model["gate_up"], down=model["down"], top_k=1)
    ids, weights = numpy.arange(T, dtype="i8")[:, None] % E, numpy.ones((T, 1), "f4")
    forced = {**model, "router": numpy.zeros((E, H), "f4")}
    out = layer(x, ids=ids, weights=weights)
    for token in range(T):
        alone = {name: array[ids[token, 0]][None] for name, array in forced.items()}
        gate, up = numpy.split(alone["gate_up"][0] @ x[token], 2)
        numpy.testing.assert_allclose(out[token], alone["down"][0] @ (gate / (1 + numpy.exp(-gate)) * up), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("strategy", [1, 2, 3, 4])
def test_layer_over_ranks(model, x, strategy):
    expected, _ = moe(model, x)
    parts = [slice(0, 5), slice(5, 5), slice(5, 9)]

    def rank(communicator):
        layer = moecl.ParallelLayer.create(communicator, parallel={"strategy": strategy}, **model, top_k=K)
        mine = x[parts[communicator.rank]]
        step = layer.agree(len(mine))
        return layer(mine), layer(mine, step=step)

    for part, (out, again) in zip(parts, moecl.RankGroup(3).run(rank)):
        numpy.testing.assert_allclose(out, expected[part], rtol=1e-4, atol=1e-4)
        numpy.testing.assert_array_equal(out, again)


def test_released_checkpoint():
    folder = GOLDENS / "mixtral-e8k2"
    golden = load(folder / "golden.safetensors")
    layer = moecl.Layer.load(folder)
    numpy.testing.assert_allclose(layer(golden["hidden_states"]), golden["output_f64"], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("fused", [0, 1])
def test_logits_of_fused_shared_experts(fused):
    folder = GOLDENS / "deepseek-v3-e32k8-g8"
    golden = load(folder / "golden.safetensors")
    layer = moecl.Layer.load(folder, num_fused_shared_experts=fused)
    _, logits, ids = layer(golden["hidden_states"], want=("out", "router_logits", "topk_ids"))
    numpy.testing.assert_allclose(logits, golden["router_logits"], rtol=1e-4, atol=1e-5)
    assert layer.describe()["choices"] == logits.shape[1] == 32
    assert ids.shape == (len(logits), layer.describe()["top_k"])


def test_logits_of_special_experts_over_ranks(model, x):
    router = numpy.random.default_rng(5).standard_normal((E + 1, H)).astype("f4")

    def rank(communicator):
        layer = moecl.ParallelLayer.create(communicator, **{**model, "router": router}, top_k=K, zero_experts=1)
        return layer(x, want=("out", "router_logits"))[1]

    for logits in moecl.RankGroup(2).run(rank):
        numpy.testing.assert_allclose(logits, x @ router.T, rtol=1e-4, atol=1e-4)


BUDGET = {"memory_budget_percent": 50, "missed_experts": 1}  # half of the experts; the others are fetched


def test_prefetch(model, x):
    whole = moecl.Layer.create(**model, top_k=K)
    layer = moecl.Layer.create(options=BUDGET, **model, top_k=K)
    beside = layer.stream.context.stream()
    token = x[:1]
    _, chosen = moe(model, token)
    layer.prefetch(token, on=beside)
    numpy.testing.assert_array_equal(layer(token), whole(token))
    counts = layer.residency()
    assert (counts["resident"], counts["prefetched"], counts["prefetched_hits"], counts["misses"]) == (E // 2, K, K, 0)
    layer.prefetch(ids=(chosen + 1) % E, weights=numpy.ones((1, K), "f4"), on=beside).wait()
    brought = len(set((chosen[0] + 1) % E) - set(chosen[0]))
    assert layer.residency()["prefetched"] == K + brought
    layer.prefetch(x, on=beside)  # more than fit: nothing is brought
    numpy.testing.assert_array_equal(layer(x), whole(x))
    assert layer.residency()["prefetched"] == K + brought
    with pytest.raises(moecl.InvalidArgument, match="expected x or ids"):
        layer.prefetch(on=beside)
    with pytest.raises(TypeError, match="no input 'expert_input'"):
        layer.prefetch(expert_input=x, on=beside)
    with pytest.raises(moecl.InvalidArgument, match="float16"):
        layer.prefetch(x.astype("f2"), on=beside)
    with pytest.raises(TypeError, match="no field 'memory_budget'"):
        moecl.Layer.create(options={"memory_budget": 1}, **model, top_k=K)
    layer.prefetch(token, on=beside)
    layer.close()  # waits for it


@pytest.mark.parametrize("budget_of", [(0, 1), (0,), (1,)])
def test_prefetch_over_ranks(model, x, budget_of):
    """The token is rank 1's; its experts are anyone's. Ranks without a budget take part."""
    token = x[:1]
    whole = moecl.Layer.create(**model, top_k=K)(token)
    _, chosen = moe(model, token)

    def rank(on):
        options = BUDGET if on.rank in budget_of else {}
        layer = moecl.ParallelLayer.create(on, parallel={"strategy": 3}, options=options, **model, top_k=K)
        mine = token if on.rank == 1 else token[:0]
        layer.prefetch(mine)
        return layer(mine), layer.residency()

    results = moecl.RankGroup(2).run(rank)
    numpy.testing.assert_array_equal(results[1][0], whole)
    for number, (_, counts) in enumerate(results):
        used = sum(expert // (E // 2) == number for expert in chosen[0]) if number in budget_of else 0
        assert (counts["prefetched"], counts["prefetched_hits"], counts["misses"]) == (used, used, 0)


def test_a_failing_rank_ends_the_group():
    def rank(communicator):
        if communicator.rank == 1:
            raise RuntimeError("out of luck")
        communicator.barrier()

    with pytest.raises(RuntimeError, match="out of luck"):
        moecl.RankGroup(2).run(rank)


def test_a_process_joins_with_several_ranks():
    """Two groups of this process, as of two: one has the ranks 0 and 2, the other rank 1."""
    name = f"test_layers-{os.getpid()}"

    def join(ranks):
        group = moecl.RankGroup.join(name, ranks, 3)
        return group.run(lambda on: (on.rank, on.all_gather(numpy.full(1, on.rank, "i4"), [1, 1, 1]).tolist())), group.transport(0, 2)

    with ThreadPoolExecutor(2) as pool:
        (several, near), (alone, elsewhere) = pool.map(join, ([0, 2], 1))
    assert several + alone == [(rank, [0, 1, 2]) for rank in (0, 2, 1)]
    assert near["reason"].startswith("same device, ")
    assert elsewhere["reason"] == "threads of another process"
    with pytest.raises(ValueError, match="0 streams for 2 ranks"):
        moecl.RankGroup.join(name, [0, 1], 2, [])


def test_who_is_left_goes_on_and_the_lost_one_comes_back():
    """Groups of this process, as of three: the one with rank 1 leaves."""
    name = f"test_layers-lost-{os.getpid()}"
    together = threading.Barrier(3, timeout=60)  # who leaves a group may cost others the end of an exchange

    def all_meet(group):
        (ranks,) = group.run(lambda on: on.all_gather(numpy.full(1, on.rank, "i4"), [1] * on.size).tolist())
        return ranks

    def process(rank):
        group = moecl.RankGroup.join(name, rank, 3)
        assert all_meet(group) == [0, 1, 2]
        together.wait()
        if rank == 1:
            group.close()
            together.wait()
            whole = moecl.RankGroup.join(name, rank, 3)
        else:
            with pytest.raises(moecl.DeadlineExceeded, match="rank 1"):
                all_meet(group)
            left = group.shrink()
            assert (left.members(), list(left.streams)) == ([0, 2], [rank // 2])
            assert all_meet(left) == [0, 1]
            together.wait()
            whole = left.rejoin()
        ranks = all_meet(whole)
        together.wait()
        return ranks

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(process, range(3))) == [[0, 1, 2]] * 3


def test_a_rank_more_takes_places(model, x):
    """It makes its layer in a group of its own; then all are one."""
    expected, _ = moe(model, x)
    streams = [moecl.default_stream().context.stream() for _ in range(3)]
    table, more, parts = list(range(E)), [2, 3, 4], [slice(0, 2), slice(2, 5), slice(5, 9)]
    alone = {"strategy": 1, "expert_of_place": more, "places": 3, "may_lack": 1}
    layers = moecl.RankGroup(streams[:2]).run(lambda on: moecl.ParallelLayer.create(on, parallel={"strategy": 1}, **model, top_k=K))
    layers += moecl.RankGroup(streams[2:]).run(lambda on: moecl.ParallelLayer.create(on, parallel=alone, **model, top_k=K))

    def grow(places):
        return lambda on: layers[on.rank].in_group(on, places)

    with pytest.raises(moecl.InvalidArgument, match="expert 5 has no place"):
        moecl.RankGroup(streams).run(grow([0, 1, 2, 3, 4, 4, *more]))
    grown = moecl.RankGroup(streams)
    grown.run(grow(table + more))
    before = grown.run(lambda on: layers[on.rank](x[parts[on.rank]]))
    for part, out in zip(parts, before):
        numpy.testing.assert_allclose(out, expected[part], rtol=1e-4, atol=1e-4)
    assert layers[2].places() == table + more

    def move(on):
        layer, mine = layers[on.rank], x[parts[on.rank]]
        moves = moecl.ExpertMigration(layer, moved, bytes_per_step=1)
        beside = [layer(mine) for _ in iter(moves.step, 0)]
        moves.commit()
        return [*beside, layer(mine)]

    moved = [*more, 3, 4, 5, 0, 1, 2]
    for part, outs in zip(before, grown.run(move)):
        assert len(outs) == 2  # between two steps, in each of which a rank gets one expert, and after them
        for out in outs:
            numpy.testing.assert_array_equal(out, part)
    assert layers[0].places() == moved


def test_collectives():
    def rank(on):
        mine = numpy.full((on.rank + 1, 2), on.rank, "f4")
        gathered = on.all_gather(mine, [1, 2])
        rooted = on.broadcast(numpy.full(3, on.rank, "i4"), 1)
        four = numpy.arange(4, dtype="f4")
        for in_place in on.all_reduce, on.broadcast:
            for part, got in (four[::2], r"strides \(2,\)"), (four[::-1], "one that has to be copied"):
                with pytest.raises(moecl.InvalidArgument, match=f"data: expected a contiguous array .*, got {got}"):
                    in_place(part)
        reduced = on.all_reduce(numpy.arange(4, dtype="f4") * (on.rank + 1))
        scattered = on.reduce_scatter(numpy.arange(6, dtype="f4").reshape(3, 2), [1, 2])
        exchanged = on.all_to_all(numpy.arange(3, dtype="i8") + 10 * on.rank, [1, 2], [1, 1] if on.rank == 0 else [2, 2])
        return gathered, rooted, reduced, scattered, exchanged

    first, second = moecl.RankGroup(2).run(rank)
    numpy.testing.assert_array_equal(first[0][:, 0], [0, 1, 1])
    numpy.testing.assert_array_equal(first[1], [1, 1, 1])
    numpy.testing.assert_array_equal(second[2], [0, 3, 6, 9])
    numpy.testing.assert_array_equal(second[3], [[4, 6], [8, 10]])
    numpy.testing.assert_array_equal(first[4], [0, 10])
    numpy.testing.assert_array_equal(second[4], [1, 2, 11, 12])


def test_trace_and_log(tmp_path, x):
    lines = []
    context = moecl.Context(trace=1, log=lambda level, text: lines.append(text), log_level=1, cache_dir=tmp_path / "cl")
    stream = context.stream()
    moecl.operators.swiglu(x, on=stream)
    context.write_trace(tmp_path / "trace.json")
    assert "gated_activation" in (tmp_path / "trace.json").read_text()
    assert context.describe()["kernels_launched"] == 1
    assert lines
