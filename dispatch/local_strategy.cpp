#include <moecl/combine.hpp>
#include <moecl/context.hpp>
#include <moecl/expert_sort.hpp>
#include <moecl/gather_rows.hpp>
#include <moecl/local_strategy.hpp>

namespace moecl::local_strategy {

Layout::Layout(WorkspaceLayout& workspace, const Problem& problem, const DeviceCaps& caps)
    : row_ends(workspace.add(static_cast<std::uint64_t>(problem.experts) * 4)),
      sorted_slots(workspace.add(static_cast<std::uint64_t>(problem.rows()) * 4)),
      slot_rows(workspace.add(static_cast<std::uint64_t>(problem.slots()) * 4)),
      sort_scratch(workspace.add(expert_sort::scratch_bytes(problem.slots(), problem.experts, caps))),
      batched_rows(problem.rows_per_expert == 0
                       ? 0
                       : workspace.add(static_cast<std::uint64_t>(problem.rows() * problem.hidden) *
                                       size_bytes(problem.dtype))) {}

Dispatched dispatch(StreamView stream, const Problem& problem, const Layout& layout, BufferView workspace, TensorView x,
                    TensorView ids, TensorView fault) {
  const auto indices = [&](std::uint64_t offset, std::int64_t count) {
    return TensorView(workspace.slice(offset, static_cast<std::uint64_t>(count) * 4), DType::i32, {count});
  };
  const TensorView row_ends = indices(layout.row_ends, problem.experts);
  const TensorView sorted_slots = indices(layout.sorted_slots, problem.rows());
  Dispatched dispatched;
  dispatched.slot_rows = indices(layout.slot_rows, problem.slots());

  expert_sort::Args sort;
  sort.ids = ids;
  sort.end_expert = sort.total_experts = problem.experts;
  sort.rows_per_expert = problem.rows_per_expert;
  sort.row_ends = row_ends;
  sort.sorted_slots = sorted_slots;
  sort.slot_rows = dispatched.slot_rows;
  sort.fault = fault;
  sort.scratch = workspace.slice(layout.sort_scratch,
                                 expert_sort::scratch_bytes(problem.slots(), problem.experts, stream.device->caps));
  expert_sort::enqueue(stream, sort);

  RoutedRows& rows = dispatched.rows;
  rows.row_ends = row_ends;
  rows.rows = problem.rows();
  rows.rows_per_expert = problem.rows_per_expert;
  if (problem.rows_per_expert == 0) {  // the first product gathers its rows itself
    rows.x = x;
    rows.index = sorted_slots;
    rows.index_divisor = problem.top_k;
    return dispatched;
  }
  const std::uint64_t size = static_cast<std::uint64_t>(problem.rows() * problem.hidden) * size_bytes(problem.dtype);
  rows.x = TensorView(workspace.slice(layout.batched_rows, size), problem.dtype, {problem.rows(), problem.hidden});
  gather_rows::enqueue(stream, {x, sorted_slots, problem.top_k, row_ends, problem.rows_per_expert, rows.x});
  return dispatched;
}

void combine(StreamView stream, const Dispatched& dispatched, TensorView expert_rows, const Finalize& finalize,
             TensorView out, Submit submit) {
  combine::Args args;
  args.rows = expert_rows;
  args.slot_rows = dispatched.slot_rows;
  args.weights = finalize.weights;
  args.shared = finalize.shared;
  args.shared_gate = finalize.shared_gate;
  args.out = out;
  combine::enqueue(stream, args, {}, submit);
}

}  // namespace moecl::local_strategy
