// Memory that several contexts share, on a machine without an NVIDIA device: errors name what is missing.
#include "runtime/external_memory.hpp"

#include <moecl/error.hpp>
#include <moecl/peer_memory.hpp>

#include <gmock/gmock.h>

#include "runtime/child_process.hpp"
#include "runtime/peer_probe.hpp"
#include "tests/devices.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

TEST(ExternalMemory, SaysWhatOfLibcudaIsMissing) {
  const auto why = [](const char* library) {
    const Error error = error_of([&] { ExternalMemory{library}; });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    return std::string(error.what());
  };
  EXPECT_THAT(why("libnosuchcuda.so.7"), HasSubstr("libnosuchcuda.so.7: cannot open shared object file"));
  EXPECT_THAT(why("libm.so.6"), HasSubstr("libm.so.6 has no cuInit"));
}

/// The path of the fake libcuda, which a build folder has beside the library. A bundle has none.
std::string fake_libcuda() {
  return std::filesystem::path(helper_program()).parent_path().parent_path() / "tests" / "libfake_cuda.so";
}

TEST(ExternalMemory, SaysWhatTheDriverRefuses) {
  const std::string library = fake_libcuda();
  if (!std::filesystem::exists(library)) GTEST_SKIP() << "a bundle has no " << library;
  setenv("FAKE_CUDA_INIT", "100", 1);
  EXPECT_THAT(error_of([&] { ExternalMemory{library.c_str()}; }).what(),
              HasSubstr("cuInit: CUDA_ERROR_OF_A_FAKE (100)"));
  unsetenv("FAKE_CUDA_INIT");
  const ExternalMemory driver(library.c_str());
  const TestDevice& on = *devices().front();
  EXPECT_EQ(driver.reject(on.context->devices().front(), on.context->devices().front()), "one device");
  for (const std::uint64_t bytes : {std::uint64_t{0}, ExternalMemory::max_bytes + 1}) {
    const Error error = error_of([&] { driver.allocate(on.stream, {}, bytes); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("bytes are not in [1, 503316480]"));
  }
  if (on.caps().nv_compute_capability == 0) {
    EXPECT_THAT(error_of([&] { driver.allocate(on.stream, {}, 64); }).what(),
                ::testing::AnyOf(HasSubstr("has no UUID"), HasSubstr("none of the 0 devices")));
  }
}

class PeerMemoryTest : public OnEveryDevice {};
MOECL_ON_EVERY_DEVICE(PeerMemoryTest);

TEST_P(PeerMemoryTest, OfTheDriverIsNvidias) {
  if (device().caps().nv_compute_capability != 0) GTEST_SKIP() << "an NVIDIA device";
  const auto second = Context::create(device().context->devices());
  const Stream other(*second);
  const auto memory = driver_peer_memory({device().stream, other});
  EXPECT_EQ(memory->reject(device().stream, other), "'" + device().caps().name + "' is no NVIDIA device");
  EXPECT_EQ(memory->max_bytes(), ExternalMemory::max_bytes);
}

TEST_P(PeerMemoryTest, StoresAreCheckedByArgumentAndByAddress) {
  const TestDevice& on = device();
  const Buffer memory(*on.context, 4 << 20), other(*on.context, 4 << 20);
  EXPECT_NO_THROW(peer_probe::check_stores(on.stream, memory, on.stream, memory));
  const Error error = error_of([&] { peer_probe::check_stores(on.stream, memory, on.stream, other); });
  EXPECT_THAT(error.what(), HasSubstr("other bytes arrived"));
}

/// The path of a program that ignores its arguments and runs `lines`.
std::string script(const TempDir& folder, const std::string& lines) {
  const std::string path = folder.file("probe");
  write_text(path, "#!/bin/sh\n" + lines);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(PeerProbe, EveryPairGetsAVerdict) {
  const TempDir folder;
  const std::string partial = script(folder, "echo 'aa bb '; echo 'bb aa other bytes arrived'\n");
  EXPECT_EQ(peer_probe::of_devices({"aa", "bb"}, partial),
            (peer_probe::Verdicts{{{"aa", "bb"}, ""}, {{"bb", "aa"}, "other bytes arrived"}}));
  const auto three = peer_probe::of_devices({"aa", "bb", "cc"}, partial);
  EXPECT_EQ(three.size(), 6u);
  EXPECT_EQ(three.at({"aa", "bb"}), "");
  EXPECT_THAT(three.at({"aa", "cc"}), HasSubstr("said nothing about this pair"));
}

TEST(PeerProbe, ACrashIsTheVerdictOnEveryPair) {
  const TempDir folder;
  for (const auto& [id, verdict] :
       peer_probe::of_devices({"aa", "bb"}, script(folder, "echo 'aa bb '; kill -SEGV $$\n")))
    EXPECT_THAT(verdict, HasSubstr("was ended by signal 11")) << id.first;
  for (const auto& [id, verdict] : peer_probe::of_devices({"aa", "bb"}, folder.file("none")))
    EXPECT_THAT(verdict, HasSubstr("cannot be started")) << id.first;
}

}  // namespace
}  // namespace moecl::test
