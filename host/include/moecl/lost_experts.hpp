#pragma once
#include <cstdint>

namespace moecl {

/// What a token gets if an expert of its choice has no place at present, as after the loss of a rank.
enum class LostExperts : std::uint8_t {
  refused,  ///< nothing from that expert, and the pass sets its fault word
  masked    ///< its other experts, with weights scaled so that they add up to the sum of all
};

}  // namespace moecl
