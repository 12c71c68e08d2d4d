#include <moecl/stable_sort.hpp>

#include "kernels_cl/common/index_view.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl::stable_sort {
namespace {

/// How a key is cut into digits. 2^12 counters fit in the local memory of every device, and sort 24 bits in two passes.
struct Digits {
  std::int32_t passes, bits;

  explicit Digits(std::int32_t key_bits) : passes((key_bits + 11) / 12), bits(quotient_up(key_bits, passes)) {}
  std::int32_t values() const { return 1 << bits; }
};

/// Bytes of the second buffer for the order from pass to pass; the first buffer is sorted_slots.
std::uint64_t order_bytes(std::int64_t slots, const Digits& digits) {
  return digits.passes == 1 ? 0 : static_cast<std::uint64_t>(slots) * sizeof(std::int32_t);
}

expert_sort::Args pass(const Args& args, const Digits& digits, std::int32_t number) {
  const std::int64_t slots = args.keys.shape[0];
  const std::uint64_t used = order_bytes(slots, digits);
  // The passes write to sorted_slots and to scratch in turn, so that the last one writes sorted_slots.
  const auto order_after = [&](std::int32_t pass_number) {
    if ((digits.passes - 1 - pass_number) % 2 == 0) return args.sorted_slots;
    return TensorView(args.scratch.slice(0, used), DType::i32, {slots});
  };
  expert_sort::Args sort;
  sort.ids = args.keys;
  sort.ids.rank = 2;
  sort.ids.shape[1] = sort.ids.stride[1] = 1;
  sort.end_expert = sort.total_experts = digits.values();
  sort.key_bits = args.key_bits;
  sort.key_shift = number * digits.bits;
  if (number > 0) sort.order = order_after(number - 1);
  if (number == 0) sort.fault = args.fault;
  sort.sorted_slots = order_after(number);
  if (number == digits.passes - 1) sort.slot_rows = args.slot_rows;
  sort.scratch = args.scratch.slice(used, args.scratch.size_bytes - used);
  return sort;
}

}  // namespace

std::uint64_t scratch_bytes(std::int64_t slots, std::int32_t key_bits, const DeviceCaps& caps) {
  const Digits digits(key_bits);
  return order_bytes(slots, digits) + expert_sort::scratch_bytes(slots, digits.values(), caps);
}

std::string reject(const Args& args, const expert_sort::Config& config, const Device& device) {
  if (args.key_bits < 1 || args.key_bits > 31) return fmt::format("key_bits: {} is outside [1, 31]", args.key_bits);
  const std::int64_t slots = args.keys.rank == 1 ? args.keys.shape[0] : -1;
  if (slots < 0) return fmt::format("keys: expected i32[S], got {}", args.keys.describe());
  for (const std::string& reason :
       {reject_indices("keys", args.keys, slots), reject_indices("sorted_slots", args.sorted_slots, slots),
        reject_optional_indices("slot_rows", args.slot_rows, slots)})
    if (!reason.empty()) return reason;
  if (const std::uint64_t needed = scratch_bytes(slots, args.key_bits, device.caps); args.scratch.size_bytes < needed)
    return fmt::format("scratch: {} bytes are needed, got {}", needed, args.scratch.size_bytes);
  return expert_sort::reject(pass(args, Digits(args.key_bits), 0), config, device);
}

void enqueue(StreamView stream, const Args& args, const expert_sort::Config& config, Submit submit) {
  const std::string reason = reject(args, config, *stream.device);
  require(reason.empty(), "stable_sort: {}", reason);
  const Digits digits(args.key_bits);
  for (std::int32_t number = 0; number < digits.passes; ++number) {
    Submit when;
    if (number == 0) when.wait = submit.wait;
    if (number == digits.passes - 1) when.done = submit.done;
    expert_sort::enqueue(stream, pass(args, digits, number), config, when);
  }
}

}  // namespace moecl::stable_sort
