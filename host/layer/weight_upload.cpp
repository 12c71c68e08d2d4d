#include "host/layer/weight_upload.hpp"

#include <moecl/gather_rows.hpp>
#include <moecl/pack_codes.hpp>
#include <moecl/pack_weights.hpp>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/bounded_wait.hpp"
#include "runtime/check.hpp"
#include "runtime/quotient.hpp"

namespace moecl {

namespace {

TensorView strided(BufferView bytes, const HostMatrix& matrix) {
  TensorView view(bytes, matrix.dtype, {static_cast<std::int64_t>(bytes.size_bytes / size_bytes(matrix.dtype))});
  view.rank = 2;
  view.shape = {matrix.rows, matrix.columns};
  view.stride = {matrix.row_stride, matrix.column_stride};
  return view;
}
std::uint64_t span_bytes(const CodeMatrix& codes) {
  return codes.present() ? static_cast<std::uint64_t>((codes.end_unit() - codes.first_unit()) * codes.unit_bytes) : 0;
}

void expect_none(const char* what, const std::string& reason) { require(reason.empty(), "{}: {}", what, reason); }

}  // namespace

void expect_matrix(const HostMatrix& matrix, const char* what, std::int64_t rows, std::int64_t columns) {
  require(matrix.present(), "{}: expected a matrix [{}, {}], got none", what, rows, columns);
  require(matrix.rows == rows && matrix.columns == columns, "{}: expected [{}, {}], got [{}, {}]", what, rows, columns,
          matrix.rows, matrix.columns);
  require(is_activation_dtype(matrix.dtype), "{}: expected f32, f16 or bf16, got {}", what, name(matrix.dtype));
  require(matrix.row_stride >= 0 && matrix.column_stride >= 0, "{}: negative stride", what);
}

WeightUpload::~WeightUpload() {
  try {
    finish();
  } catch (const std::exception&) {  // unwinding from the first failure, which is the one to report
  }
}

void WeightUpload::finish() {
  if (std::exchange(pending_, false)) stream_.finish();
  written_.clear();
  staged_ = {};  // the host memory may hold something else next time
}

std::vector<BufferView> WeightUpload::reserve(std::initializer_list<std::uint64_t> bytes) {
  constexpr std::uint64_t alignment = 64;
  std::uint64_t total = 0;
  std::vector<BufferView> parts;
  for (const std::uint64_t size : bytes) {
    parts.push_back({nullptr, total, size});
    total += quotient_up(size, alignment) * alignment;
  }
  staged_ = {};
  if (total > staging_.size_bytes()) staging_ = Buffer(*stream_.context, total);
  for (BufferView& part : parts) part.handle = staging_.handle();
  return parts;
}

void WeightUpload::send(const HostBytes& bytes, BufferView to) {
  if (only_checks()) return;
  pending_ = true;
  read_bytes_ += to.size_bytes;
  if (bytes.memory() != nullptr) return enqueue_write(stream_, to, bytes.memory(), to.size_bytes);
  if (!chunks_) chunks_.emplace(stream_, chunk_bytes * taken_.size());
  for (std::uint64_t sent = 0; sent < to.size_bytes; sent += chunk_bytes) {
    unsigned char* const chunk = chunks_->data() + next_chunk_ * chunk_bytes;
    Event& taken = taken_[next_chunk_];
    next_chunk_ = (next_chunk_ + 1) % taken_.size();
    const std::uint64_t size = std::min(chunk_bytes, to.size_bytes - sent);
    expect_end(*stream_.context, taken);
    taken.wait();
    (bytes + static_cast<std::int64_t>(sent)).read(chunk, size);
    enqueue_write(stream_, to.slice(sent, size), chunk, size, {{}, &taken});
    stream_.flush();
  }
}

TensorView WeightUpload::stage(const HostMatrix& matrix, BufferView to) {
  if (!matrix.present()) return {};
  send(matrix.data, to);
  return strided(to, matrix);
}

void WeightUpload::stage_together(const std::vector<WeightMatrix>& matrices) {
  const HostBytes& first = matrices.front().plain.data;
  std::int64_t begin = 0, end = 0, separately = 0;  // relative to the first matrix
  for (const WeightMatrix& matrix : matrices) {
    const std::optional<std::int64_t> at = matrix.plain.data.distance_from(first);
    if (matrix.quantized() || !at) return;
    const auto bytes = static_cast<std::int64_t>(matrix.plain.span_bytes());
    begin = std::min(begin, *at);
    end = std::max(end, *at + bytes);
    separately += bytes;
  }
  if (end - begin >= separately) return;
  const BufferView to = reserve({static_cast<std::uint64_t>(end - begin)}).front();
  send(first + begin, to);
  staged_ = first + begin;
  staged_bytes_ = end - begin;
}

TensorView WeightUpload::find_staged(const HostMatrix& matrix) const {
  const std::optional<std::int64_t> at = matrix.data.distance_from(staged_);
  const auto bytes = static_cast<std::int64_t>(matrix.span_bytes());
  if (!staged_.present() || !at || *at < 0 || *at + bytes > staged_bytes_) return {};
  return strided(staging_.view().slice(static_cast<std::uint64_t>(*at), matrix.span_bytes()), matrix);
}

TensorView WeightUpload::rows_of(const HostMatrix& matrix) {
  if (const TensorView staged = find_staged(matrix); staged.present() && matrix.column_stride == 1) return staged;
  if (matrix.column_stride == 1) return stage(matrix, reserve({matrix.span_bytes()}).front());
  const std::size_t element = size_bytes(matrix.dtype);
  const HostBytes bytes = matrix.in_memory().data;
  std::vector<unsigned char> rows(static_cast<std::size_t>(matrix.rows * matrix.columns) * element);
  unsigned char* to = rows.data();
  for (std::int64_t n = 0; n < matrix.rows; ++n)
    for (std::int64_t k = 0; k < matrix.columns; ++k, to += element)
      std::memcpy(to,
                  bytes.memory() + static_cast<std::size_t>(n * matrix.row_stride + k * matrix.column_stride) * element,
                  element);
  read_bytes_ += rows.size();
  const TensorView view(reserve({rows.size()}).front(), matrix.dtype, {matrix.rows, matrix.columns});
  write(rows.data(), view);
  return view;
}

BufferView WeightUpload::stage(const CodeMatrix& codes, BufferView to) {
  if (!codes.present()) return {};
  send(codes.data + codes.first_unit() * codes.unit_bytes, to);
  return to;
}

void WeightUpload::write(const void* values, TensorView to) {
  if (only_checks()) return;
  pending_ = true;
  const auto* bytes = static_cast<const unsigned char*>(values);
  const std::vector<unsigned char>& kept = written_.emplace_back(bytes, bytes + to.size_bytes());
  enqueue_write(stream_, {to.buffer.handle, to.buffer.offset_bytes, to.size_bytes()}, kept.data(), kept.size());
}

void WeightUpload::pack(const WeightMatrix& matrix, const PackedWeights& packed, std::int64_t expert,
                        std::int64_t first_column, const std::vector<std::int32_t>& source_groups) {
  if (!matrix.quantized()) {
    TensorView source = find_staged(matrix.plain);
    if (!source.present()) source = stage(matrix.plain, reserve({matrix.plain.span_bytes()}).front());
    const pack_weights::Args args{source, packed, expert, first_column};
    if (only_checks()) return expect_none("pack_weights", pack_weights::reject(args, *stream_.device));
    return pack_weights::enqueue(stream_, args);
  }
  const HostMatrix scale = packed.grouped() ? matrix.scale : HostMatrix();
  const std::vector<BufferView> parts = reserve({span_bytes(matrix.codes), scale.span_bytes(), span_bytes(matrix.zero),
                                                 source_groups.size() * sizeof(source_groups[0])});
  pack_codes::Args args;
  args.source = stage(matrix.codes, parts[0]);
  args.codes = matrix.codes;
  args.packed = packed;
  args.expert = expert;
  args.first_column = first_column;
  args.scale = stage(scale, parts[1]);
  args.group_rows = matrix.group.rows == ScaleGroup::whole ? matrix.rows() : matrix.group.rows;
  args.zero = stage(matrix.zero, parts[2]);
  args.zero_codes = matrix.zero;
  args.zero_add = matrix.zero_add;
  if (!source_groups.empty()) {
    args.source_group = TensorView(parts[3], DType::i32, {static_cast<std::int64_t>(source_groups.size())});
    write(source_groups.data(), args.source_group);
  }
  if (only_checks()) return expect_none("pack_codes", pack_codes::reject(args, *stream_.device));
  pack_codes::enqueue(stream_, args);
}

void WeightUpload::copy(const HostMatrix& matrix, TensorView to) {
  require(matrix.column_stride == 1, "copy: a transposed matrix cannot be copied row by row");
  if (static_cast<std::int64_t>(iota_values_.size()) < matrix.rows) {
    stream_.finish();  // the write of the old values may still be under way
    iota_values_.resize(static_cast<std::size_t>(matrix.rows));
    std::iota(iota_values_.begin(), iota_values_.end(), 0);
    iota_ = Buffer(*stream_.context, iota_values_.size() * 4);
    pending_ = true;
    enqueue_write(stream_, iota_.view(), iota_values_.data(), iota_.size_bytes());
  }
  gather_rows::Args args;
  args.x = stage(matrix, reserve({matrix.span_bytes()}).front());
  args.index = TensorView(iota_.view(), DType::i32, {matrix.rows});
  args.out = to;
  if (only_checks()) return expect_none("gather_rows", gather_rows::reject(args, {}, *stream_.device));
  gather_rows::enqueue(stream_, args);
}

}  // namespace moecl
