#pragma once
// What operators do about programs that do not build on a device.
#include <moecl/context.hpp>
#include <moecl/error.hpp>
#include <moecl/stream.hpp>

#include <string>

namespace moecl {

/// Runs `enqueue`; where its program does not build, `variant` has failed on the device from then on.
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

/// Runs `enqueue`, and again for each variant that fails meanwhile, since it then chooses another one.
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
