#include <moecl/context.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/local_strategy.hpp>

namespace moecl::local_strategy {

Layout::Layout(WorkspaceLayout& workspace, const Problem& problem, const DeviceCaps& caps)
    : row_ends(workspace.add(DType::i32, {problem.experts})),
      sorted_slots(workspace.add(DType::i32, {problem.rows()})),
      slot_rows(workspace.add(DType::i32, {problem.slots()})),
      sort_scratch(workspace.add(
          DType::u8, {static_cast<std::int64_t>(expert_sort::scratch_bytes(problem.slots(), problem.experts, caps))})) {
  if (problem.rows_per_expert != 0) batched_rows = workspace.add(problem.dtype, {problem.rows(), problem.hidden});
}

expert_sort::Args sort_args(const Problem& problem, const Layout& layout, BufferView workspace, TensorView ids,
                            TensorView fault) {
  expert_sort::Args sort;
  sort.ids = ids;
  sort.end_expert = sort.total_experts = problem.experts;
  sort.rows_per_expert = problem.rows_per_expert;
  sort.row_ends = tensor_in(workspace, layout.row_ends);
  sort.sorted_slots = tensor_in(workspace, layout.sorted_slots);
  sort.slot_rows = tensor_in(workspace, layout.slot_rows);
  sort.fault = fault;
  sort.scratch = tensor_in(workspace, layout.sort_scratch).buffer;
  return sort;
}

Dispatched dispatch(StreamView stream, const Problem& problem, const Layout& layout, BufferView workspace, TensorView x,
                    const expert_sort::Args& sort) {
  Dispatched dispatched;
  dispatched.slot_rows = sort.slot_rows;
  RoutedRows& rows = dispatched.rows;
  rows.row_ends = sort.row_ends;
  rows.rows = problem.rows();
  rows.rows_per_expert = problem.rows_per_expert;
  if (problem.rows_per_expert == 0) {  // the first product gathers its rows itself
    rows.x = x;
    rows.index = sort.sorted_slots;
    rows.index_divisor = problem.top_k;
    return dispatched;
  }
  rows.x = tensor_in(workspace, layout.batched_rows);
  gather_rows::enqueue(stream, {x, sort.sorted_slots, problem.top_k, sort.row_ends, problem.rows_per_expert, rows.x});
  return dispatched;
}

combine::Args combine_args(const Dispatched& dispatched, TensorView expert_rows, const Finalize& finalize,
                           TensorView out) {
  combine::Args args;
  args.rows = expert_rows;
  args.slot_rows = dispatched.slot_rows;
  args.weights = finalize.weights;
  args.shared = finalize.shared;
  args.shared_gate = finalize.shared_gate;
  args.out = out;
  return args;
}

void combine(StreamView stream, const Dispatched& dispatched, TensorView expert_rows, const Finalize& finalize,
             TensorView out, Submit submit) {
  combine::enqueue(stream, combine_args(dispatched, expert_rows, finalize, out), {}, submit);
}

}  // namespace moecl::local_strategy
