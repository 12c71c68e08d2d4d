#pragma once
#include <cstdint>

namespace moecl {

/// What a token gets whose expert has no place at present, as after the loss of a rank.
enum class LostExperts : std::uint8_t {
  refused,  ///< nothing of that expert, and the pass sets its fault word
  masked    ///< its other experts, with weights that add up to what all of them did
};

}  // namespace moecl
