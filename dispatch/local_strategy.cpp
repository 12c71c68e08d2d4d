#include <moecl/context.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/local_strategy.hpp>

namespace moecl::local_strategy {

Layout::Layout(WorkspaceLayout& workspace, const Problem& problem, const DeviceCaps& caps)
    : row_ends(workspace.add(static_cast<std::uint64_t>(problem.experts) * 4)),
      sorted_slots(workspace.add(static_cast<std::uint64_t>(problem.rows()) * 4)),
      slot_rows(workspace.add(static_cast<std::uint64_t>(problem.slots()) * 4)),
      sort_scratch_bytes(expert_sort::scratch_bytes(problem.slots(), problem.experts, caps)),
      sort_scratch(workspace.add(sort_scratch_bytes)),
      batched_rows(problem.rows_per_expert == 0
                       ? 0
                       : workspace.add(static_cast<std::uint64_t>(problem.rows() * problem.hidden) *
                                       size_bytes(problem.dtype))) {}

expert_sort::Args sort_args(const Problem& problem, const Layout& layout, BufferView workspace, TensorView ids,
                            TensorView fault) {
  const auto indices = [&](std::uint64_t offset, std::int64_t count) {
    return TensorView(workspace.slice(offset, static_cast<std::uint64_t>(count) * 4), DType::i32, {count});
  };
  expert_sort::Args sort;
  sort.ids = ids;
  sort.end_expert = sort.total_experts = problem.experts;
  sort.rows_per_expert = problem.rows_per_expert;
  sort.row_ends = indices(layout.row_ends, problem.experts);
  sort.sorted_slots = indices(layout.sorted_slots, problem.rows());
  sort.slot_rows = indices(layout.slot_rows, problem.slots());
  sort.fault = fault;
  sort.scratch = workspace.slice(layout.sort_scratch, layout.sort_scratch_bytes);
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
  const std::uint64_t size = static_cast<std::uint64_t>(problem.rows() * problem.hidden) * size_bytes(problem.dtype);
  rows.x = TensorView(workspace.slice(layout.batched_rows, size), problem.dtype, {problem.rows(), problem.hidden});
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
