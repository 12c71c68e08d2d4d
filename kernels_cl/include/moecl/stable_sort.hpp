#pragma once
#include <moecl/expert_sort.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Stable radix sort of slots by int32 keys: passes of expert_sort over digits of up to 12 bits, lowest digit first.
///
/// Source: npu_moe_token_permute and npu_moe_init_routing of the Ascend operators, which sort without an expert count
namespace moecl::stable_sort {

struct Args {
  TensorView keys;             ///< Shape: [S] i32. Range: [0, 2^key_bits); others set the fault word and land anywhere
  std::int32_t key_bits = 24;  ///< Range: [1, 31]
  TensorView sorted_slots;     ///< out. Shape: [S] i32: the slots by ascending key, equal keys in slot order
  TensorView slot_rows;        ///< optional out. Shape: [S] i32, the inverse: the position of slot i in sorted_slots
  TensorView fault;            ///< optional in/out. Shape: [4] i32, see fault.hpp: the lowest slot in fault
  BufferView scratch;          ///< at least scratch_bytes(S, key_bits, caps)
};

/// Units: bytes.
std::uint64_t scratch_bytes(std::int64_t slots, std::int32_t key_bits, const DeviceCaps& caps);

/// Why `args` cannot run on `device`; empty when they can.
std::string reject(const Args& args, const expert_sort::Config& config, const Device& device);
/// Errors: invalid_argument  `reject` says why
/// Async:  one to three kernels per pass. Empty: S == 0 enqueues kernels that write nothing
void enqueue(StreamView stream, const Args& args, const expert_sort::Config& config = {}, Submit submit = {});

}  // namespace moecl::stable_sort
