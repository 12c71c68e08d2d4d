"""Operators called from Python give what the recorded cases say."""
import inspect
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from cases import OPERATORS, Case

import moecl
from moecl import operators

SINGLE = [path for path in sorted(OPERATORS.glob("*/*.json")) if "distribute" not in path.parent.name]
TOGETHER = sorted(OPERATORS.glob("npu_moe_distribute_dispatch_v2/*.json"))


def function_of(operator):
    return getattr(operators, operator.replace("_C_ascend.", "c_ascend_").replace("npu_", ""))


def named(function, result):
    names = [field.split()[1] for field in _fields(function) if field.startswith("o ")]
    return dict(zip(names, result if len(names) > 1 else [result]))


def _fields(function):
    return [" ".join(field) for field in getattr(operators, f"_{function.__name__}").fields]


@pytest.mark.parametrize("path", SINGLE, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_recorded_case(path):
    case = Case(path)
    function = function_of(case.operator)
    result = function(**case.inputs(), **case.parameters(inspect.signature(function).parameters))
    assert case.check(named(function, result)) > 0


@pytest.mark.parametrize("path", TOGETHER, ids=lambda path: path.stem)
def test_ranks_together(path):
    case = Case(path)
    function = function_of(case.operator)
    known = inspect.signature(function).parameters

    def rank(on):
        parameters = {**case.parameters(known), "ep_rank_id": on.rank, "ep_world_size": on.size}
        return named(function, function(on, **case.inputs(f"rank{on.rank}."), **parameters))

    ranks = case.about["parameters"]["ep_world_size"]
    results = moecl.RankGroup(ranks).run(rank)
    results = [{**result, "expand_idx_v1": None} for result in results]
    assert all(case.check(result, f"rank{number}.") > 0 for number, result in enumerate(results))


def test_strided_rows_are_read_in_place():
    wide = numpy.arange(48, dtype="f4").reshape(4, 12)
    order = numpy.array([2, 0, 3, 1], "i4")
    permuted, rows = operators.moe_token_permute(wide[:, 4:8], order)
    numpy.testing.assert_array_equal(permuted, wide[[1, 3, 0, 2], 4:8])
    numpy.testing.assert_array_equal(rows, order)


def test_columns_are_copied():
    x = numpy.arange(24, dtype="f4").reshape(4, 6)
    permuted, _ = operators.moe_token_permute(x.T, numpy.arange(6, dtype="i4")[::-1])
    numpy.testing.assert_array_equal(permuted, x.T[::-1])


def test_buffers_and_dlpack():
    class Exported:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = numpy.array([[1, 2], [3, 4]], "f4")
    for array in (Exported(x), memoryview(x)):
        permuted, _ = operators.moe_token_permute(array, numpy.array([1, 0], "i4"))
        numpy.testing.assert_array_equal(permuted, x[::-1])


def test_arrays_of_pyopencl_in_their_own_context():
    cl = pytest.importorskip("pyopencl")
    import pyopencl.array

    device = next(device for platform in cl.get_platforms() for device in platform.get_devices())
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    stream = moecl.Context.wrap(context.int_ptr).wrap_stream(queue.int_ptr)
    x = numpy.arange(24, dtype="f4").reshape(3, 8)
    permuted, _ = operators.moe_token_permute(pyopencl.array.to_device(queue, x), numpy.array([2, 0, 1], "i4"), on=stream)
    numpy.testing.assert_array_equal(permuted, x[[1, 2, 0]])


def test_calls_of_threads_go_side_by_side():
    """Each thread has a stream of its own."""
    inputs = [numpy.random.default_rng(i).standard_normal((64, 128)).astype("f4") for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda x: [operators.swiglu(x) for _ in range(20)][-1], inputs))
    for x, y in zip(inputs, found):
        gate, up = numpy.split(x.astype("f8"), 2, 1)
        numpy.testing.assert_allclose(y, gate / (1 + numpy.exp(-gate)) * up, rtol=1e-5, atol=1e-6)


def test_errors_are_of_their_kinds():
    with pytest.raises(moecl.InvalidArgument, match=r"dimension 1 of f32\[4, 3\] cannot be halved") as error:
        operators.swiglu(numpy.zeros((4, 3), "f4"))
    assert isinstance(error.value, ValueError)
    with pytest.raises(NotImplementedError):
        operators.dynamic_mx_quant(numpy.zeros((4, 64), "f4"), block_size=16)
    with pytest.raises(moecl.Error, match="slot 1 has the sort key"):
        operators.moe_token_permute(numpy.zeros((2, 4), "f4"), numpy.array([0, -7], "i4"))
    permuted, _ = operators.moe_token_permute(numpy.ones((1, 4), "f4"), numpy.zeros(1, "i4"))  # the fault is gone
    assert permuted.sum() == 4
    with pytest.raises(TypeError, match="float64"):
        operators.swiglu(numpy.zeros((2, 4)))
    with pytest.raises(ValueError, match="expected one of divide"):
        operators.dynamic_quant(numpy.zeros((2, 4), "f4"), rounding="up")
    with pytest.raises(moecl.NoDevice, match="no such platform"):
        moecl.Context(platform="no such platform")


def test_every_operator_says_what_it_takes():
    for name in operators.__all__:
        text = inspect.getdoc(getattr(operators, name))
        assert all(part in text for part in ("Args:", "Returns:", "Rounding:")), name
