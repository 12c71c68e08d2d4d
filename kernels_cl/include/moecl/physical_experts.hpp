#pragma once
#include <moecl/operator_cost.hpp>
#include <moecl/stream.hpp>
#include <moecl/tensor_view.hpp>

#include <cstdint>
#include <string>

/// Where the chosen experts of tokens stand, when an expert may stand at several places:
/// physical[t, k] = places[e, hash(first_token + t) % replicas[e]] with e = ids[t, k].
///
/// hash(token) = token * 2654435769 mod 2^32: all K slots of a token share it, and it depends on nothing else, so a
/// token chooses the same replicas in every run and however the tokens are dealt to ranks.
/// Source: replica choice of vLLM's EPLB
namespace moecl::physical_experts {

struct Args {
  TensorView ids;       ///< Shape: [T, K] i32. Range: [0, E), -1 is "no expert"; others give -1 and set the fault word
  TensorView places;    ///< Shape: [E, most replicas] i32: the places of each expert, then padding that is not read
  TensorView replicas;  ///< Shape: [E] i32: how many places each expert has; 0 gives -1
  std::int64_t first_token = 0;  ///< of all tokens, the number of the first one here
  TensorView physical;           ///< out. Shape: [T, K] i32
  TensorView fault;              ///< optional in/out. Shape: [4] i32, see fault.hpp
  /// optional, both or neither: the weights of the choices, and out, those of a token's experts that have places,
  /// multiplied by one number so that their sum is what it was; 0 for those that have none. Shape: [T, K] f32
  TensorView weights = {}, placed_weights = {};
  std::int32_t expected = 0;  ///< experts [0, expected) should have places: one without has gone
  bool refuses = false;       ///< who asks for an expert that has gone sets the fault word
};

/// Why this cannot run; empty when it can.
std::string reject(const Args& args);
/// Errors: invalid_argument  `reject` says why
/// Async:  one kernel. Empty: T == 0 enqueues nothing
void enqueue(StreamView stream, const Args& args, Submit submit = {});
OperatorCost cost(const Args& args);

}  // namespace moecl::physical_experts
