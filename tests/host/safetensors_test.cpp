#include <moecl/safetensors.hpp>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <numeric>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/checkpoint/safetensors_format.hpp"
#include "tests/host/files.hpp"

namespace moecl::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// The bytes of a file with that header and that many bytes of data.
std::string file_bytes(const std::string& header, std::size_t data_bytes) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\1');
}

HostTensor host_tensor(const char* name, DType dtype, std::vector<std::int64_t> shape, const void* data,
                       std::uint64_t bytes) {
  return {name, dtype, std::move(shape), static_cast<const std::byte*>(data), bytes};
}

TEST(SafetensorsTest, ReadsAFileThatHuggingFaceWrote) {
  const auto file = SafetensorsFile::open(data_path("goldens/mixtral-e8k2/golden.safetensors"));
  const HostTensor hidden = file.tensor("hidden_states");
  EXPECT_EQ(hidden.describe(), "hidden_states: f32[33, 96]");
  EXPECT_EQ(hidden.size_bytes, 33U * 96 * 4);
  const HostTensor counts = file.tensor("expert_counts");
  ASSERT_EQ(counts.describe(), "expert_counts: i32[8]");
  std::vector<std::int32_t> values(8);
  counts.data.read(values.data(), counts.size_bytes);
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0), 33 * 2);
  EXPECT_EQ(file.tensor("bf16.hidden_states").dtype, DType::bf16);
  EXPECT_TRUE(file.has("output"));
  EXPECT_FALSE(file.has("outpu"));
}

TEST(SafetensorsTest, WritesTheFormatToTheByte) {
  const TempDir dir;
  const std::uint8_t small[3] = {1, 2, 3};
  const std::uint16_t wide[2] = {0x1234, 0x5678};
  write_safetensors(dir.file("x"),
                    {host_tensor("b\"", DType::u8, {3, 1}, small, 3), host_tensor("a", DType::bf16, {2}, wide, 4),
                     host_tensor("e", DType::f32, {0, 7}, nullptr, 0)});
  std::string header =
      R"({"__metadata__":{"format":"pt"},"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},)"
      R"("a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"b\"":{"dtype":"U8","shape":[3,1],"data_offsets":[4,7]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string file = file_bytes(header, 0) + std::string("\x34\x12\x78\x56\1\2\3");
  EXPECT_EQ(read_text(dir.file("x")), file);

  const auto read = SafetensorsFile::open(dir.file("x"));
  EXPECT_THAT(read.names(), ElementsAre("e", "a", "b\""));
  EXPECT_EQ(std::memcmp(read.tensor("a").in_memory().data.memory(), wide, 4), 0);
  EXPECT_THAT(read.tensor("e").shape, ElementsAre(0, 7));
  EXPECT_EQ(read.metadata().at("format"), "pt");
}

TEST(SafetensorsTest, FailedWriteLeavesTheOldFileAndNothingElse) {
  const TempDir dir;
  const float value = 1;
  const HostTensor good = host_tensor("x", DType::f32, {1}, &value, 4);
  write_safetensors(dir.file("x"), {good});
  const std::string before = read_text(dir.file("x"));

  EXPECT_EQ(error_of([&] { write_safetensors(dir.file("x"), {good, good}); }).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(error_of([&] { write_safetensors(dir.file("x"), {host_tensor("y", DType::f32, {2}, &value, 4)}); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_EQ(
      error_of([&] { write_safetensors(dir.file("x"), {host_tensor("y\xff", DType::f32, {1}, &value, 4)}); }).code(),
      ErrorCode::invalid_argument);
  EXPECT_THROW(write_tensors(dir.file("x"), std::vector{good, host_tensor("y", DType::f32, {1}, nullptr, 4)},
                             [](const HostTensor& tensor) -> const void* {
                               if (tensor.name == "y") throw std::runtime_error("half way");
                               return tensor.data.memory();
                             }),
               std::runtime_error);
  EXPECT_EQ(read_text(dir.file("x")), before);
  EXPECT_EQ(dir.entries(), 1U);

  const Error error = error_of([&] { write_safetensors(dir.file("missing/x"), {good}); });
  EXPECT_EQ(error.code(), ErrorCode::io_error);
  EXPECT_THAT(error.what(), HasSubstr("missing/x"));
}

TEST(SafetensorsTest, ADtypeThatMoeclDoesNotKnowMattersOnlyWhenAskedFor) {
  const TempDir dir;
  write_text(dir.file("x"), file_bytes(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]},)"
                                       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                                       3));
  const auto file = SafetensorsFile::open(dir.file("x"));
  EXPECT_EQ(file.tensor("b").size_bytes, 1U);
  const Error error = error_of([&] { file.tensor("a"); });
  EXPECT_EQ(error.code(), ErrorCode::unsupported);
  EXPECT_THAT(error.what(), HasSubstr("F4"));
  EXPECT_EQ(error_of([&] { file.tensor("c"); }).code(), ErrorCode::invalid_data);
}

TEST(SafetensorsTest, HeaderKeysMayComeInAnyOrder) {
  const TempDir dir;
  write_text(dir.file("x"), file_bytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[2,3]},)"
                                       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}  )",
                                       3));
  EXPECT_THAT(SafetensorsFile::open(dir.file("x")).names(), ElementsAre("b", "a"));
}

TEST(SafetensorsTest, HostileFilesGetAClearError) {
  const auto tensor = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string(R"({"a":{"dtype":)") + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)") + first +
           R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}";
  };
  const auto length = [](std::uint64_t value, const std::string& rest) {
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &value, 8);
    return bytes + rest;
  };
  const struct {
    const char* what;
    std::string bytes;
    const char* message;
  } cases[] = {
      {"empty file", "", "0 bytes"},
      {"seven bytes", "1234567", "7 bytes"},
      {"header beyond the file", length(100, "{}"), "header of 100 bytes"},
      {"header one beyond the file", length(3, "{}"), "the file has 2"},
      {"absurd header", length(~std::uint64_t{0}, "{}"), "more than 100000000"},
      {"length that overflows with 8", length(~std::uint64_t{0} - 7, "{}"), "more than 100000000"},
      {"no header", length(0, ""), "parse error"},
      {"bad JSON", file_bytes("{\"a\":", 0), "parse error"},
      {"text after the JSON", file_bytes("{} x", 0), "parse error"},
      {"NUL padding", file_bytes(std::string("{}\0\0", 4), 0), "NUL byte at offset 2"},
      {"bad UTF-8", file_bytes("{\"\xff\":1}", 0), "UTF-8"},
      {"an array", file_bytes("[]", 0), "expected a JSON object"},
      {"a tensor that is a number", file_bytes(R"({"a":1})", 0), "not an object"},
      {"deep nesting", file_bytes(R"({"a":{"shape":[[[[[[0]]]]]]}})", 0), "nested deeper"},
      {"same name twice", file_bytes(two("[0,2]", "[2,4]").replace(53, 3, "\"a\""), 4), "twice"},
      {"metadata not strings", file_bytes(R"({"__metadata__":{"a":1}})", 0), "__metadata__"},
      {"metadata not an object", file_bytes(R"({"__metadata__":[]})", 0), "__metadata__"},
      {"no dtype", file_bytes(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1), "no \"dtype\""},
      {"no shape", file_bytes(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1), "no \"shape\""},
      {"no offsets", file_bytes(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "no \"data_offsets\""},
      {"dtype not a string", file_bytes(tensor("1", "[1]", "[0,1]"), 1), "not a string"},
      {"shape not an array", file_bytes(tensor("\"U8\"", "1", "[0,1]"), 1), "not an array"},
      {"negative extent", file_bytes(tensor("\"U8\"", "[-1]", "[0,1]"), 1), "-1"},
      {"fractional extent", file_bytes(tensor("\"U8\"", "[1.0]", "[0,1]"), 1), "1.0"},
      {"extent beyond 64 bits", file_bytes(tensor("\"U8\"", "[18446744073709551616]", "[0,1]"), 1), "not an integer"},
      {"extent beyond 63 bits", file_bytes(tensor("\"U8\"", "[18446744073709551615]", "[0,1]"), 1), "not an integer"},
      {"size that wraps to 0", file_bytes(tensor("\"U8\"", "[4294967296,4294967296]", "[0,0]"), 0), "overflows"},
      {"bytes that wrap", file_bytes(tensor("\"F64\"", "[2305843009213693953]", "[0,8]"), 8), "overflows"},
      {"one offset", file_bytes(tensor("\"U8\"", "[1]", "[1]"), 1), "1 data_offsets"},
      {"three offsets", file_bytes(tensor("\"U8\"", "[1]", "[0,1,1]"), 1), "3 data_offsets"},
      {"negative offset", file_bytes(tensor("\"U8\"", "[1]", "[-1,0]"), 1), "-1"},
      {"end before begin", file_bytes(tensor("\"U8\"", "[1]", "[1,0]"), 1), "begins at byte 1"},
      {"fewer bytes than the shape", file_bytes(tensor("\"F32\"", "[2]", "[0,4]"), 4), "takes 8 bytes"},
      {"more bytes than the shape", file_bytes(tensor("\"BF16\"", "[2]", "[0,8]"), 8), "takes 4 bytes"},
      {"lower-case dtype", file_bytes(tensor("\"f32\"", "[1]", "[1,5]"), 5), "begins at byte 1"},
      {"end beyond the file", file_bytes(tensor("\"U8\"", "[9]", "[0,9]"), 8), "9 of 8"},
      {"offsets near 2^63", file_bytes(tensor("\"U8\"", "[1]", "[9223372036854775806,9223372036854775807]"), 1),
       "of 1 bytes"},
      {"gap at the start", file_bytes(tensor("\"U8\"", "[1]", "[1,2]"), 2), "begins at byte 1"},
      {"bytes left over", file_bytes(tensor("\"U8\"", "[1]", "[0,1]"), 2), "2 bytes of data, the tensors take 1"},
      {"data without tensors", file_bytes("{}", 4), "4 bytes of data"},
      {"overlap", file_bytes(two("[0,2]", "[1,3]"), 3), "begins at byte 1"},
      {"the same bytes", file_bytes(two("[0,2]", "[0,2]"), 2), "begins at byte 0"},
      {"gap between", file_bytes(two("[0,2]", "[3,5]"), 5), "begins at byte 3"},
      {"unknown dtype out of the file", file_bytes(tensor("\"F4\"", "[9]", "[0,9]"), 8), "9 of 8"},
  };
  const TempDir dir;
  const std::string path = dir.file("hostile.safetensors");
  for (const auto& hostile : cases) {
    SCOPED_TRACE(hostile.what);
    write_text(path, hostile.bytes);
    const Error error = error_of([&] { SafetensorsFile::open(path); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_data);
    EXPECT_THAT(error.what(), HasSubstr(hostile.message));
    EXPECT_THAT(error.what(), HasSubstr(path));
  }
}

TEST(SafetensorsTest, WhatIsNoRegularFileIsAnIoError) {
  const TempDir dir;
  ASSERT_EQ(::mkfifo(dir.file("fifo").c_str(), 0600), 0);
  for (const std::string& path : {dir.path(), dir.file("fifo"), dir.file("missing"), std::string("/dev/zero")})
    EXPECT_EQ(error_of([&] { SafetensorsFile::open(path); }).code(), ErrorCode::io_error) << path;
}

/// The thread's seconds to open a file of that many tensors and to find the last tensor.
double seconds_to_open(std::size_t count) {
  const auto name = [](std::size_t i) { return fmt::format("model.layers.0.mlp.experts.{}.up_proj.weight", i); };
  std::string header = "{";
  for (std::size_t i = 0; i < count; ++i)
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1,1],"data_offsets":[{},{}]}})", i == 0 ? "" : ",", name(i),
                          i, i + 1);
  const TempDir dir;
  write_text(dir.file("x"), file_bytes(header + "}", count));
  const double before = thread_seconds();
  const auto file = SafetensorsFile::open(dir.file("x"));
  EXPECT_EQ(file.names().size(), count);
  EXPECT_EQ(file.tensor(name(count - 1)).shape, (std::vector<std::int64_t>{1, 1}));
  return thread_seconds() - before;
}

TEST(SafetensorsTest, ManyTensorsTakeTimeInProportion) {
  const double few = seconds_to_open(10'000), many = seconds_to_open(100'000);
  EXPECT_LT(many, most_for_tenfold * few);
}

// This is what an engine sees that reads a checkpoint while somebody writes the checkpoint anew.
TEST(SafetensorsTest, AFileThatShrinksIsAnIoError) {
  const TempDir dir;
  const std::vector<float> values(100'000, 1.5F);
  write_safetensors(dir.file("x"), {host_tensor("w", DType::f32, {100'000}, values.data(), 400'000)});
  const auto file = SafetensorsFile::open(dir.file("x"));
  const HostTensor tensor = file.tensor("w");
  std::filesystem::resize_file(dir.file("x"), 200'000);
  std::vector<float> read(values.size());
  const Error error = error_of([&] { tensor.data.read(read.data(), tensor.size_bytes); });
  EXPECT_EQ(error.code(), ErrorCode::io_error);
  EXPECT_THAT(error.what(), HasSubstr(dir.file("x") + " has become shorter: it had 400"));
  EXPECT_THAT(error.what(), HasSubstr("from byte 200000 on are missing"));
}

TEST(SafetensorsTest, ATensorOutlivesTheFileObjectAndTheFilesName) {
  const TempDir dir;
  const float value = 1.5F;
  write_safetensors(dir.file("x"), {host_tensor("w", DType::f32, {1}, &value, 4)});
  const HostTensor tensor = SafetensorsFile::open(dir.file("x")).tensor("w");
  std::filesystem::remove(dir.file("x"));
  float read = 0;
  tensor.data.read(&read, 4);
  EXPECT_EQ(read, value);
}

TEST(SafetensorsTest, RandomDamageGivesAnErrorOrAValidFile) {
  const TempDir dir;
  std::string path = dir.file("damaged.safetensors");
  const std::vector<float> values(24, 1.5F);
  write_safetensors(path, {host_tensor("w", DType::f32, {2, 3}, values.data(), 24),
                           host_tensor("b", DType::bf16, {5}, values.data(), 10),
                           host_tensor("c", DType::i8, {1, 7}, values.data(), 7)});
  const std::string valid = read_text(path);
  const int memory = ::memfd_create("damaged", 0);  // thousands of files on disk would take seconds
  ASSERT_GE(memory, 0);
  path = "/proc/self/fd/" + std::to_string(memory);
  std::mt19937_64 random(1);
  int accepted = 0, refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string bytes = valid;
    for (std::uint64_t flips = random() % 4 + (i % 2); flips > 0; --flips)
      bytes[random() % bytes.size()] ^= static_cast<char>(1U << random() % 8);
    if (i % 3 == 0) bytes.resize(random() % (bytes.size() + 8));
    ASSERT_EQ(::ftruncate(memory, 0), 0);
    ASSERT_EQ(::pwrite(memory, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    try {
      const auto file = SafetensorsFile::open(path);
      for (const std::string& name : file.names()) {
        const HostTensor tensor = file.tensor(name).in_memory();  // may be `unsupported`
        ASSERT_EQ(static_cast<std::uint64_t>(tensor.elements()) * size_bytes(tensor.dtype), tensor.size_bytes);
        volatile unsigned sum = 0;
        for (std::uint64_t b = 0; b < tensor.size_bytes; ++b)
          sum = sum + std::to_integer<unsigned>(tensor.data.memory()[b]);
      }
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  }
  ::close(memory);
  EXPECT_GT(accepted, 100);
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace moecl::test
