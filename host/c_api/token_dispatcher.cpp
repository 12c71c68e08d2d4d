// The C interface of token dispatchers: exchange strategies around the caller's own experts.
#include <moecl/combine.hpp>
#include <moecl/expert_sort.hpp>
#include <moecl/index_vectors.hpp>
#include <moecl/strategy.hpp>
#include <moecl/token_dispatcher.h>

#include "host/c_api/forward.hpp"
#include "host/c_api/layer.hpp"
#include "host/c_api/ranks.hpp"

struct moecl_token_dispatcher {
  /// The states of a step in their order. Each one accepts a single call, see `name_of`.
  enum class State { idle, dispatching, hooked, received, combining };

  std::shared_ptr<moecl::c_api::GroupOfStreams> ranks;
  moecl::ExpertRank rank;
  moecl::ExpertProblem problem;
  bool reduce_results;
  std::unique_ptr<moecl::Strategy> strategy;
  State state = State::idle;
  std::int64_t tokens = 0, rows = 0;               ///< of the current step
  std::vector<std::int64_t> tokens_of_ranks = {};  ///< tokens of each rank, where the caller gives them
  moecl::TensorView out = {};
};

namespace moecl::c_api {
namespace {

using State = moecl_token_dispatcher::State;

const char* name_of(State state) {
  switch (state) {
    case State::idle:
      return "begin_dispatch";
    case State::dispatching:
      return "dispatch_hook";
    case State::hooked:
      return "receive_dispatch";
    case State::received:
      return "begin_combine";
    case State::combining:
      break;
  }
  return "finish_combine";
}

/// Runs one call of a step. If it fails on one rank alone, the group ends.
template <class Body>
moecl_status step(moecl_token_dispatcher* dispatcher, State expected, State next, Body body) {
  if (dispatcher == nullptr) return failed(MOECL_INVALID_ARGUMENT, "dispatcher: the pointer is null");
  return guarded([&] {
    dispatcher->rank.ep.together([&] {
      require(dispatcher->state == expected, "dispatcher: {} comes next, not {}", name_of(dispatcher->state),
              name_of(expected));
      body(*dispatcher, dispatcher->rank.ep.rank_stream());
      dispatcher->state = next;
    });
  });
}

moecl_device_array array_of(const TensorView& view) {
  return view.present() ? moecl_device_array{view.buffer.handle, view.buffer.offset_bytes} : moecl_device_array{};
}

TensorView indices_of(const Context& context, moecl_device_array array, const char* what, std::int64_t count) {
  return {tensor_of(context, array, what, DType::i32, count, 1).buffer, DType::i32, {count}};
}

}  // namespace
}  // namespace moecl::c_api

using namespace moecl;
using namespace moecl::c_api;

moecl_status moecl_token_dispatcher_create(moecl_communicator* communicator,
                                           const moecl_token_dispatcher_options* options,
                                           moecl_token_dispatcher** out_dispatcher) {
  return collective(communicator, [&](Communicator& ranks, const Context&) {
    moecl_token_dispatcher*& out = required(out_dispatcher, "out_dispatcher");
    const auto from = read_struct(options, "options");
    require(from.strategy > MOECL_STRATEGY_AUTO && from.strategy <= MOECL_STRATEGY_MULTICAST,
            "options.strategy: {} is not in [1, {}]", from.strategy, static_cast<int>(MOECL_STRATEGY_MULTICAST));
    require(from.experts >= 1, "options.experts: {} is not positive", from.experts);
    const ExpertRank rank(ranks, or_default(from.tp, 1), from.experts,
                          enumerator(from.expert_sharding, ExpertSharding::intermediate, "options.expert_sharding"),
                          from.ranks_per_node);
    ExpertProblem problem;
    problem.hidden = from.hidden;
    problem.top_k = from.top_k;
    problem.dtype = from.dtype == MOECL_DEFAULT_DTYPE ? DType::f32 : dtype_of(from.dtype, "options.dtype");
    problem.wire = enumerator(from.wire, WireFormat::mxfp8, "options.wire");
    problem.batched = from.batched != 0;
    problem.room = from.rows_per_expert;
    problem.expert_output = enumerator(from.expert_output, ExpertOutput::sums, "options.expert_output");
    require(from.rows_per_expert >= 0, "options.rows_per_expert: {} is negative", from.rows_per_expert);
    if (problem.batched && problem.wire != WireFormat::none)
      fail(ErrorCode::unsupported, "options.batched: the layout is of rows as they are, not of {} codes",
           name(problem.wire));
    auto strategy =
        Strategy::make(static_cast<StrategyKind>(from.strategy - 1), from.beside != 0 ? rank.beside() : rank, problem);
    out = new moecl_token_dispatcher{communicator->ranks, rank, problem, from.partial_sums == 0, std::move(strategy)};
  });
}

moecl_status moecl_token_dispatcher_destroy(moecl_token_dispatcher* dispatcher) {
  return guarded([&] { delete dispatcher; });
}

moecl_status moecl_begin_dispatch(moecl_token_dispatcher* dispatcher, const moecl_dispatch_args* args) {
  return step(dispatcher, State::idle, State::dispatching, [&](moecl_token_dispatcher& of, StreamView stream) {
    const auto given = read_struct(args, "args");
    const Context& context = *stream.context;
    require(given.tokens >= 0, "tokens: {} is negative", given.tokens);
    TokensIn tokens;
    tokens.x = tensor_of(context, given.x, "x", of.problem.dtype, given.tokens, of.problem.hidden);
    tokens.ids = tensor_of(context, given.ids, "ids", c_api::ids_dtype(given.ids_dtype, "ids_dtype"), given.tokens,
                           of.problem.top_k);
    tokens.weights = optional_tensor(context, given.weights, "weights", DType::f32, given.tokens, of.problem.top_k);
    if (given.fault.memory != nullptr) tokens.fault = fault_word(context, given.fault);
    tokens.reduce_results = of.reduce_results;
    if (given.tokens_of_ranks != nullptr) {
      of.tokens_of_ranks.assign(given.tokens_of_ranks, given.tokens_of_ranks + of.rank.ep.size());
      tokens.tokens_of_ranks = &of.tokens_of_ranks;
    }
    tokens.capacity = given.capacity;
    require(given.capacity >= 0, "capacity: {} is negative", given.capacity);
    of.tokens = given.tokens;
    if (const auto sort = of.strategy->prepare(tokens, {})) expert_sort::enqueue(stream, *sort);
    of.strategy->begin_dispatch();
  });
}

moecl_status moecl_dispatch_hook(moecl_token_dispatcher* dispatcher) {
  return step(dispatcher, State::dispatching, State::hooked,
              [](moecl_token_dispatcher& of, StreamView) { of.strategy->hook(); });
}

moecl_status moecl_receive_dispatch(moecl_token_dispatcher* dispatcher, moecl_routed_rows* out_rows) {
  return step(dispatcher, State::hooked, State::received, [&](moecl_token_dispatcher& of, StreamView) {
    const RoutedRows rows = of.strategy->receive();
    of.rows = of.problem.experts_sum() ? rows.slot_rows.shape[0] : rows.rows;
    moecl_routed_rows told{};
    told.rows = rows.rows;
    told.source_rows = rows.x.shape[0];
    told.x = array_of(rows.x);
    told.x_scale = array_of(rows.x_scale);
    told.index = array_of(rows.index);
    told.row_ends = array_of(rows.row_ends);
    told.index_divisor = rows.index_divisor;
    told.first_expert = of.rank.first_expert;
    told.local_experts = of.rank.local_experts;
    told.rows_per_expert = rows.rows_per_expert;
    told.weights = array_of(rows.weights);
    told.slot_rows = array_of(rows.slot_rows);
    if (rows.slot_rows.present()) {
      told.tokens = rows.slot_rows.shape[0];
      told.slots = rows.slot_rows.shape[1];
    }
    write_struct(told, out_rows, "out_rows");
  });
}

moecl_status moecl_begin_combine(moecl_token_dispatcher* dispatcher, moecl_device_array expert_rows,
                                 moecl_device_array out) {
  return step(dispatcher, State::received, State::combining, [&](moecl_token_dispatcher& of, StreamView stream) {
    const Context& context = *stream.context;
    of.out = tensor_of(context, out, "out", DType::f32, of.tokens, of.problem.hidden);
    of.strategy->begin_combine(tensor_of(context, expert_rows, "expert_rows", DType::f32, of.rows, of.problem.hidden),
                               of.out);
  });
}

moecl_status moecl_finish_combine(moecl_token_dispatcher* dispatcher) {
  return step(dispatcher, State::combining, State::idle, [](moecl_token_dispatcher& of, StreamView stream) {
    combine::Args sum = of.strategy->finish_combine();
    if (!sum.slot_rows.present()) return;
    sum.out = of.out;
    combine::enqueue(stream, sum);
  });
}

moecl_status moecl_token_dispatch(moecl_token_dispatcher* dispatcher, const moecl_dispatch_args* args,
                                  moecl_routed_rows* out_rows) {
  moecl_status status = moecl_begin_dispatch(dispatcher, args);
  if (status == MOECL_OK) status = moecl_dispatch_hook(dispatcher);
  return status == MOECL_OK ? moecl_receive_dispatch(dispatcher, out_rows) : status;
}

moecl_status moecl_token_combine(moecl_token_dispatcher* dispatcher, moecl_device_array expert_rows,
                                 moecl_device_array out) {
  const moecl_status status = moecl_begin_combine(dispatcher, expert_rows, out);
  return status == MOECL_OK ? moecl_finish_combine(dispatcher) : status;
}

moecl_status moecl_histogram(moecl_stream* stream, moecl_device_array ids, int32_t ids_dtype, int64_t count,
                             moecl_device_array counts, int32_t experts) {
  return guarded([&] {
    const StreamView on = required(stream, "stream").stream;
    require(count >= 0, "count: {} is negative", count);
    require(experts >= 1, "experts: {} is not positive", experts);
    const DType dtype = c_api::ids_dtype(ids_dtype, "ids_dtype");
    index_vectors::enqueue(on, index_vectors::Histogram{tensor_of(*on.context, ids, "ids", dtype, count, 1),
                                                        indices_of(*on.context, counts, "counts", experts)});
  });
}

moecl_status moecl_repeat_interleave(moecl_stream* stream, moecl_device_array row_ends, int32_t groups, int32_t modulus,
                                     moecl_device_array out, int64_t rows) {
  return guarded([&] {
    const StreamView on = required(stream, "stream").stream;
    require(groups >= 1, "groups: {} is not positive", groups);
    require(rows >= 0, "rows: {} is negative", rows);
    index_vectors::enqueue(on, index_vectors::GroupOfRow{indices_of(*on.context, row_ends, "row_ends", groups), modulus,
                                                         indices_of(*on.context, out, "out", rows)});
  });
}
