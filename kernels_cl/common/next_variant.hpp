#pragma once
// How operators react to a program that does not build on a device.
#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/stream.hpp>

#include <string>

namespace moecl {

/// Runs `enqueue`. If its program does not build, the device counts `variant` as failed from then on.
/// Errors: as `enqueue`
template <class Enqueue>
void note_failure(StreamView stream, const std::string& variant, Enqueue enqueue) {
  try {
    enqueue();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::build_failed) {
      stream.device->failed_variants->add(variant, error.what());
      stream.context->log(LogLevel::warning, "from now on without " + variant + ": " + error.what());
    }
    throw;
  }
}

/// Runs `enqueue`, and repeats it whenever a variant fails meanwhile, since `enqueue` then chooses another variant.
template <class Enqueue>
auto with_next_variant(StreamView stream, Enqueue enqueue) {
  const FailedVariants& failed = *stream.device->failed_variants;
  for (;;) {
    const std::size_t before = failed.size();
    try {
      return enqueue();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::build_failed || failed.size() == before) throw;
    }
  }
}

}  // namespace moecl
