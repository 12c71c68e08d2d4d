#pragma once
#include <moecl/route_tokens.hpp>

#include "tests/cases/device_memory.hpp"

namespace moecl::test {

/// What route_tokens is given of logits, and where it answers. Shape: logits [tokens, experts], slots tokens * top_k
struct RoutedTokens {
  DeviceTensor logits, ids, weights, row_ends, sorted_slots, slot_rows;

  RoutedTokens(StreamView stream, std::int64_t tokens, std::int32_t experts, std::int64_t top_k,
               const std::vector<double>& values)
      : logits(stream, DType::f32, {tokens, experts}, values),
        ids(stream, DType::i32, {tokens, top_k}),
        weights(stream, DType::f32, {tokens, top_k}),
        row_ends(stream, DType::i32, {experts}),
        sorted_slots(stream, DType::i32, {tokens * top_k}),
        slot_rows(stream, DType::i32, {tokens * top_k}) {}

  route_tokens::Args args() const {
    route_tokens::Args args;
    args.gating = {logits, {}, ids, weights};
    args.sort.ids = ids;
    args.sort.end_expert = args.sort.total_experts = static_cast<std::int32_t>(row_ends.view.shape[0]);
    args.sort.row_ends = row_ends;
    args.sort.sorted_slots = sorted_slots;
    args.sort.slot_rows = slot_rows;
    return args;
  }
};

}  // namespace moecl::test
