#include "host/checkpoint/quantized_tensors.hpp"

#include <moecl/checkpoint.hpp>
#include <moecl/safetensors.hpp>

#include <gmock/gmock.h>

#include <cstring>
#include <memory>

#include "tests/host/files.hpp"
#include "tests/oracle/weight_matrix.hpp"

namespace moecl::test {
namespace {

using testing::HasSubstr;

constexpr const char* module_name = "model.layers.0.mlp.experts.0.gate_proj";

/// A checkpoint with the tensors of one matrix. Each tensor's name is the module's name and an addition.
class QuantizedTensorsTest : public testing::Test {
 protected:
  QuantizedTensorsTest() {
    std::filesystem::copy_file(data_path("goldens/qwen3-moe-e64k8/config.json"), dir_.file("config.json"));
    part_.name = std::string(module_name) + ".weight";
  }

  void open(const std::string& file) {
    format_ = std::make_unique<SafetensorsFile>(SafetensorsFile::open(data_path("formats/" + file + ".safetensors")));
  }
  HostTensor of_format(const std::string& name) const { return format_->tensor(name); }
  void add(const std::string& addition, HostTensor tensor) {
    tensor.name = module_name + addition;
    tensors_.push_back(std::move(tensor));
  }
  template <class T>
  void add(const std::string& addition, DType dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
    const auto* data = reinterpret_cast<const std::byte*>(values.data());
    std::vector<std::byte>& bytes = owned_.emplace_back(data, data + values.size() * sizeof(T));
    add(addition, HostTensor{"", dtype, std::move(shape), bytes.data(), bytes.size()});
  }
  /// Reads the matrix as the configuration describes it.
  const WeightMatrix& read(const std::string& quantization_config, std::int64_t rows, std::int64_t columns) {
    part_.rows = rows;
    part_.columns = columns;
    if (part_.experts == 0) part_.stored_rows = rows;
    write_safetensors(dir_.file("model.safetensors"), tensors_);
    config_ = QuantizationConfig::parse(quantization_config, "config.json");
    const QuantizedModules* modules = config_.find(module_name);
    if (modules == nullptr) throw std::runtime_error("not quantized");
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(dir_.path()));
    const QuantizedTensors found(*checkpoint_, *modules, part_);
    matrix_ = found.matrix();
    input_scale_ = found.input_scale();
    return matrix_;
  }
  Error error_of_read(const std::string& quantization_config, std::int64_t rows, std::int64_t columns) {
    return error_of([&] { read(quantization_config, rows, columns); });
  }
  /// Row n of the matrix is row `rows[n]` of the expected values.
  void expect_values(const std::string& name, const std::vector<std::int64_t>& rows) {
    const HostTensor tensor = of_format(name).in_memory();
    const std::int64_t columns = tensor.shape[1];
    ASSERT_EQ(matrix_.rows(), static_cast<std::int64_t>(rows.size()));
    for (std::size_t n = 0; n < rows.size(); ++n) {
      for (std::int64_t k = 0; k < columns; ++k) {
        float expected;
        std::memcpy(&expected, tensor.data.memory() + 4 * (rows[n] * columns + k), sizeof(expected));
        ASSERT_FLOAT_EQ(static_cast<float>(weight_element(matrix_, static_cast<std::int64_t>(n), k)), expected)
            << n << ", " << k;
      }
    }
  }
  void expect_values(const std::string& name) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(of_format(name).shape[0]));
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(i);
    expect_values(name, rows);
  }

  TempDir dir_;
  std::unique_ptr<SafetensorsFile> format_;
  std::vector<HostTensor> tensors_;
  std::vector<std::vector<std::byte>> owned_;
  TensorPart part_;
  QuantizationConfig config_;
  std::unique_ptr<Checkpoint> checkpoint_;
  WeightMatrix matrix_;
  std::optional<float> input_scale_;
};

constexpr const char* gptq = R"({"quant_method":"gptq","bits":4,"group_size":128})";
constexpr const char* awq = R"({"quant_method":"awq","bits":4,"group_size":128})";
constexpr const char* nvfp4 = R"({"quant_method":"modelopt","quant_algo":"NVFP4"})";
constexpr const char* fp8 = R"({"quant_method":"fp8"})";
constexpr const char* fp8_block = R"({"quant_method":"fp8","weight_block_size":[128,128]})";
constexpr const char* mxfp4 = R"({"quant_method":"mxfp4"})";

std::string compressed(const std::string& format, const std::string& weights) {
  return R"({"quant_method":"compressed-tensors","format":")" + format +
         R"(","config_groups":{"g":{"targets":["Linear"],"weights":{)" + weights + "}}}}";
}

std::string quark(const std::string& dtype) {
  return R"({"quant_method":"quark","global_quant_config":{"weight":{"dtype":")" + dtype +
         R"(","qscheme":"per_group","group_size":32,"scale_format":"e8m0"}}})";
}

TEST_F(QuantizedTensorsTest, GptqAndAwq) {
  open("int4_g128_gptq");
  for (const char* name : {"qweight", "qzeros", "scales", "g_idx"})
    add(std::string(".") + name, of_format(std::string("stored.") + name));
  read(gptq, 32, 256);
  EXPECT_TRUE(matrix_.group_index.empty());  // the group of column k is k / 128
  EXPECT_EQ(matrix_.zero_add, 1);
  expect_values("dequant");

  tensors_.clear();
  open("int4_g128_awq");
  for (const char* name : {"qweight", "qzeros", "scales"})
    add(std::string(".") + name, of_format(std::string("stored.") + name));
  read(awq, 32, 256);
  expect_values("dequant");
}

TEST_F(QuantizedTensorsTest, GptqV2StoresTheZeroItself) {
  open("int4_g128_gptq");
  for (const char* name : {"qweight", "scales"}) add(std::string(".") + name, of_format(std::string("stored.") + name));
  const HostTensor stored = of_format("stored.qzeros");
  std::vector<std::uint32_t> zeros(static_cast<std::size_t>(stored.elements()));
  stored.data.read(zeros.data(), stored.size_bytes);
  for (std::uint32_t& word : zeros) word += 0x11111111U;  // no zero of this file is 16
  add(".qzeros", DType::i32, stored.shape, zeros);
  read(R"({"quant_method":"gptq","bits":4,"group_size":128,"checkpoint_format":"gptq_v2"})", 32, 256);
  EXPECT_EQ(matrix_.zero_add, 0);
  expect_values("dequant");
}

TEST_F(QuantizedTensorsTest, ActOrderLooksGroupsUp) {
  open("int4_g128_gptq");
  for (const char* name : {"qweight", "qzeros", "scales"})
    add(std::string(".") + name, of_format(std::string("stored.") + name));
  std::vector<std::int32_t> groups(256);
  for (std::size_t k = 0; k < groups.size(); ++k) groups[k] = k % 3 == 0 ? 1 : 0;
  add(".g_idx", DType::i32, {256}, groups);
  const WeightMatrix& matrix = read(gptq, 32, 256);
  ASSERT_EQ(matrix.group_index, groups);
  WeightMatrix in_order = matrix;
  in_order.group_index.clear();
  // A column that keeps its group does not change; any other column has the zero and the scale of its new group.
  WeightMatrix of_group_1 = in_order;
  of_group_1.group = ScaleGroup::per_channel();
  of_group_1.scale.data = matrix.scale.data + 2 * matrix.scale.column_stride;
  of_group_1.zero.data = matrix.zero.data + 4 * matrix.zero.column_stride;
  for (std::int64_t n = 0; n < 32; ++n)
    for (std::int64_t k = 0; k < 256; ++k)
      if (k % 3 == 0 || k < 128) {
        ASSERT_EQ(weight_element(matrix, n, k), weight_element(k % 3 == 0 ? of_group_1 : in_order, n, k));
      }
  groups[17] = 2;
  tensors_.pop_back();
  add(".g_idx", DType::i32, {256}, groups);
  EXPECT_THAT(error_of_read(gptq, 32, 256).what(), HasSubstr("g_idx[17] is 2, not one of 2 groups"));
}

TEST_F(QuantizedTensorsTest, CompressedTensorsPacked) {
  for (const bool symmetric : {true, false}) {
    tensors_.clear();
    open(symmetric ? "int4_g128_ct_pack_quantized_sym" : "int4_g128_ct_pack_quantized_asym");
    for (const char* name : {"weight_packed", "weight_scale", "weight_shape"})
      add(std::string(".") + name, of_format(std::string("stored.") + name));
    if (!symmetric) add(".weight_zero_point", of_format("stored.weight_zero_point"));
    const std::string config =
        compressed("pack-quantized", std::string(R"("num_bits":4,"strategy":"group","group_size":128,"symmetric":)") +
                                         (symmetric ? "true" : "false"));
    read(config, 32, 256);
    expect_values("dequant");
    tensors_.erase(tensors_.begin() + 2);
    add(".weight_shape", DType::i64, {2}, std::vector<std::int64_t>{32, 255});
    EXPECT_THAT(error_of_read(config, 32, 256).what(),
                HasSubstr("weight_shape is [32, 255], but config.json makes it [32, 256]"));
  }
}

TEST_F(QuantizedTensorsTest, Int8ForEachChannel) {
  open("int8_per_token_per_channel");
  add(".weight", of_format("weight_q"));
  add(".weight_scale", of_format("weight_scale"));
  read(compressed("int-quantized", R"("num_bits":8,"strategy":"channel")"), 48, 160);
  expect_values("weight_dequant");
  // With zero points, and scales without the axis of one group.
  tensors_.pop_back();
  HostTensor scale = of_format("weight_scale");
  scale.shape = {48};
  add(".weight_scale", scale);
  add(".weight_zero_point", DType::i8, {48, 1}, std::vector<std::int8_t>(48, 3));
  const double symmetric = weight_element(matrix_, 5, 7);
  read(compressed("int-quantized", R"("num_bits":8,"strategy":"channel","symmetric":false)"), 48, 160);
  const double scale_5 = matrix_element(matrix_.scale, 5, 0);
  EXPECT_DOUBLE_EQ(weight_element(matrix_, 5, 7), symmetric - 3 * scale_5);
}

TEST_F(QuantizedTensorsTest, Fp8OfEveryGranularity) {
  open("fp8_token_group_block");
  add(".weight", of_format("weight_block_q"));
  add(".weight_scale_inv", of_format("weight_block_scale_inv"));
  read(fp8_block, 136, 320);
  expect_values("weight_block_dequant");

  tensors_.clear();
  add(".weight", of_format("weight_channel_q"));
  add(".weight_scale", of_format("weight_channel_scale"));
  read(compressed("float-quantized", R"("num_bits":8,"type":"float","strategy":"channel")"), 136, 320);
  expect_values("weight_channel_dequant");
  read(fp8, 136, 320);  // this configuration does not tell row scales from a tensor's scale
  EXPECT_EQ(matrix_.group, ScaleGroup::per_channel());
  expect_values("weight_channel_dequant");

  tensors_.clear();
  add(".weight", of_format("weight_tensor_q"));
  HostTensor scale = of_format("weight_tensor_scale");
  scale.shape = {};
  add(".weight_scale", scale);
  add(".input_scale", DType::f32, {1}, std::vector<float>{0.25F});
  read(R"({"quant_method":"fp8","activation_scheme":"static"})", 136, 320);
  EXPECT_EQ(matrix_.group, ScaleGroup::per_tensor());
  EXPECT_EQ(input_scale_, 0.25F);
  float first;
  of_format("weight_tensor_scale").data.read(&first, sizeof(first));
  EXPECT_FLOAT_EQ(static_cast<float>(matrix_element(matrix_.scale, 0, 0)), first);
  read(fp8, 136, 320);
  EXPECT_FALSE(input_scale_.has_value());
}

TEST_F(QuantizedTensorsTest, Nvfp4InBothConventionsOfTheGlobalScale) {
  open("nvfp4_block16");
  add(".weight_packed", of_format("packed"));
  add(".weight_scale", of_format("scale_e4m3"));
  add(".weight_global_scale", of_format("global_scale"));
  read(compressed("nvfp4-pack-quantized", R"("num_bits":4,"type":"float","strategy":"tensor_group","group_size":16)"),
       24, 96);
  expect_values("dequant");

  tensors_.clear();
  add(".weight", of_format("packed"));
  add(".weight_scale", of_format("scale_e4m3"));
  add(".weight_scale_2", of_format("global_scale_inverse"));
  add(".input_scale", DType::f32, {}, std::vector<float>{0.5F});
  read(nvfp4, 24, 96);
  expect_values("dequant");
  EXPECT_EQ(input_scale_, 0.5F);
}

TEST_F(QuantizedTensorsTest, NumbersMayHave16Bits) {
  open("nvfp4_block16");
  const auto with = [&](DType dtype, std::uint16_t quarter, std::uint16_t three) {
    tensors_.clear();
    add(".weight", of_format("packed"));
    add(".weight_scale", of_format("scale_e4m3"));
    add(".weight_scale_2", dtype, {}, std::vector<std::uint16_t>{quarter});
    add(".input_scale", dtype, {1}, std::vector<std::uint16_t>{three});
    return read(nvfp4, 24, 96).global_scale;
  };
  EXPECT_EQ(with(DType::bf16, 0x3e80, 0x4040), 0.25F);
  EXPECT_EQ(input_scale_, 3.0F);
  EXPECT_EQ(with(DType::f16, 0x3400, 0x4200), 0.25F);
  EXPECT_EQ(input_scale_, 3.0F);
  tensors_.back().dtype = DType::i8;
  tensors_.back().shape = {2};
  EXPECT_THAT(error_of_read(nvfp4, 24, 96).what(), HasSubstr("makes it f32, f16 or bf16 [1]"));
}

TEST_F(QuantizedTensorsTest, ScalesOfBlocksMayBeBytesWhereTheirFormatSaysSo) {
  const std::vector<std::uint8_t> codes(256 * 128, 0x38);  // 1
  add(".weight", DType::f8_e4m3, {256, 128}, codes);
  add(".weight_scale_inv", DType::u8, {2, 1}, std::vector<std::uint8_t>{126, 130});
  read(R"({"quant_method":"fp8","weight_block_size":[128,128],"scale_fmt":"ue8m0"})", 256, 128);
  EXPECT_EQ(weight_element(matrix_, 127, 5), 0.5);
  EXPECT_EQ(weight_element(matrix_, 128, 5), 8);
  EXPECT_THAT(error_of_read(fp8_block, 256, 128).what(), HasSubstr("makes it f32, f16 or bf16 [2, 1]"));
}

TEST_F(QuantizedTensorsTest, MxOfEveryWidth) {
  open("mx_block32");
  for (const char* name : {"mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4_e2m1"}) {
    SCOPED_TRACE(name);
    tensors_.clear();
    const std::string format = name, kind = format.substr(2, 3) + format.substr(5);
    HostTensor codes = of_format(format + ".code").in_memory();
    if (kind == "fp4_e2m1") {
      add(".weight", of_format(format + ".packed"));
    } else if (kind.substr(0, 3) == "fp6") {
      std::vector<std::uint8_t> packed;
      for (std::size_t i = 0; i < codes.size_bytes; i += 4) {
        std::uint32_t word = 0;
        for (std::size_t j = 0; j < 4; ++j)
          word |= std::to_integer<std::uint32_t>(codes.data.memory()[i + j]) << (6 * j);
        for (int j = 0; j < 3; ++j) packed.push_back(static_cast<std::uint8_t>(word >> (8 * j)));
      }
      add(".weight", DType::u8, {9, 144}, packed);
    } else {
      codes.dtype = kind == "fp8_e4m3" ? DType::f8_e4m3 : DType::f8_e5m2;
      add(".weight", codes);
    }
    add(".weight_scale", of_format(format + ".scale_e8m0"));
    read(quark(kind == "fp4_e2m1" ? "fp4" : kind), 9, 192);
    expect_values(format + ".dequant");
  }
}

// gpt-oss: all experts in one tensor, gate and up rows alternating.
TEST_F(QuantizedTensorsTest, BlocksOfAllExpertsWithAlternatingRows) {
  open("mx_block32");
  HostTensor blocks = of_format("mxfp4_e2m1.packed"), scales = of_format("mxfp4_e2m1.scale_e8m0");
  blocks.shape = {2, 4, 6, 16};  // 2 experts of 4 rows; the last of the file's 9 is left out
  blocks.size_bytes = 8 * 96;
  scales.shape = {2, 4, 6};
  scales.size_bytes = 8 * 6;
  add("_blocks", blocks);
  add("_scales", scales);
  part_.name = module_name;
  part_.experts = 2;
  part_.expert = 1;
  part_.stored_rows = 4;
  part_.step = 2;
  part_.first_row = 1;
  part_.transposed = true;  // like the unquantized form
  read(mxfp4, 2, 192);
  expect_values("mxfp4_e2m1.dequant", {5, 7});
  part_.expert = 0;
  part_.first_row = 0;
  read(mxfp4, 2, 192);
  expect_values("mxfp4_e2m1.dequant", {0, 2});
}

// Like the fp8 experts of Llama-4: [E, K, 2N], a scale for each output, gate in the first half of the columns.
TEST_F(QuantizedTensorsTest, TransposedExpertsInHalves) {
  open("fp8_token_group_block");
  const HostTensor q = of_format("weight_channel_q").in_memory(), scale = of_format("weight_channel_scale");
  std::vector<std::byte> turned(q.size_bytes);
  for (std::size_t e = 0; e < 2; ++e)
    for (std::size_t n = 0; n < 68; ++n)
      for (std::size_t k = 0; k < 320; ++k) turned[(e * 320 + k) * 68 + n] = q.data.memory()[(e * 68 + n) * 320 + k];
  add("", DType::f8_e4m3, {2, 320, 68}, turned);
  HostTensor scales = scale;
  scales.shape = {2, 1, 68};
  add("_weight_scale", scales);
  part_.name = module_name;
  part_.experts = 2;
  part_.expert = 1;
  part_.stored_rows = 68;
  part_.first_row = 34;
  part_.transposed = true;
  read(R"({"quant_method":"fbgemm_fp8"})", 34, 320);
  std::vector<std::int64_t> rows(34);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int64_t>(68 + 34 + i);
  expect_values("weight_channel_dequant", rows);
}

TEST_F(QuantizedTensorsTest, WhatDoesNotFitTheConfigurationIsSaid) {
  open("int4_g128_gptq");
  EXPECT_THAT(error_of_read(gptq, 32, 256).what(), HasSubstr("no quantized tensor of \"" + std::string(module_name)));
  add(".qweight", of_format("stored.qweight"));
  EXPECT_THAT(error_of_read(gptq, 32, 256).what(), HasSubstr("gate_proj.weight_scale\" or \""));
  add(".scales", of_format("stored.scales"));
  EXPECT_THAT(error_of_read(gptq, 32, 256).what(), HasSubstr("gate_proj.qzeros\" or \""));
  add(".qzeros", of_format("stored.qzeros"));
  EXPECT_THAT(error_of_read(gptq, 40, 256).what(),
              HasSubstr("gate_proj.qweight: i32[32, 32], but the quantization_config makes it i32[32, 40]"));
  EXPECT_THAT(error_of_read(R"({"quant_method":"gptq","bits":4,"group_size":64})", 32, 256).what(),
              HasSubstr("gate_proj.scales: f16[2, 32], but the quantization_config makes it f32, f16 or bf16 [4, 32]"));
  EXPECT_THAT(error_of_read(R"({"quant_method":"gptq","bits":8,"group_size":128})", 32, 256).what(),
              HasSubstr("makes it i32[64, 32]"));
  tensors_.clear();
  open("nvfp4_block16");
  add(".weight_packed", of_format("packed"));
  add(".weight_scale", of_format("scale_e4m3"));
  add(".weight_global_scale", DType::f32, {1}, std::vector<float>{0});
  EXPECT_THAT(error_of_read(nvfp4, 24, 96).what(), HasSubstr("weight_global_scale is 0, not above 0 and finite"));
  const Error error = error_of_read(fp8, 24, 96);
  EXPECT_EQ(error.code(), ErrorCode::invalid_data);
  EXPECT_THAT(error.what(),
              HasSubstr("weight_packed: u8[24, 48], but the quantization_config makes it f8_e4m3[24, 96]"));
}

}  // namespace
}  // namespace moecl::test
