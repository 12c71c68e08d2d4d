#pragma once
// Host matrices on their way into device memory.
#include <moecl/buffer.hpp>
#include <moecl/moe_weights.hpp>
#include <moecl/packed_weights.hpp>
#include <moecl/tensor_view.hpp>

#include <array>
#include <deque>
#include <initializer_list>
#include <optional>
#include <vector>

#include "runtime/pinned_memory.hpp"

namespace moecl {

/// Writes host matrices to the device through one staging buffer and converts them to their place there.
///
/// What stands in a file is read by the calling thread, in chunks: while the device takes one the next is read.
///
/// Async:  writes are enqueued, so host matrices must live until `finish` or the destructor, which stop the host.
/// Errors: of all calls that read a file io_error
class WeightUpload {
 public:
  enum class Purpose { write, check };
  explicit WeightUpload(StreamView stream, Purpose purpose = Purpose::write) : stream_(stream), purpose_(purpose) {}
  /// Also after a failed load nothing reads the host matrices any more.
  ~WeightUpload();
  WeightUpload(const WeightUpload&) = delete;
  WeightUpload& operator=(const WeightUpload&) = delete;
  /// Errors: device_error  a write or conversion failed
  void finish();
  StreamView stream() const noexcept { return stream_; }
  /// Nothing is written then, and the same calls are refused.
  bool only_checks() const noexcept { return purpose_ == Purpose::check; }

  /// Into rows [first_column, first_column + matrix.rows()) of an expert's N: a plain matrix converted, a quantized one
  /// as it is. `source_groups`: with packed.group_index, the matrix' group that is each group of `packed`.
  void pack(const WeightMatrix& matrix, const PackedWeights& packed, std::int64_t expert, std::int64_t first_column,
            const std::vector<std::int32_t>& source_groups = {});
  /// A plain matrix in the staging buffer, its rows contiguous there; valid until the next call. A transposed one is
  /// turned on the host.
  TensorView rows_of(const HostMatrix& matrix);
  /// Plain matrices whose elements alternate in one range of memory: it is written once, and the calls of `pack` that
  /// follow find them there. Does nothing with others.
  void stage_together(const std::vector<WeightMatrix>& matrices);
  /// Copies to.size_bytes() bytes now and writes them.
  void write(const void* values, TensorView to);
  /// Into a row-major matrix of the same shape, converting the type.
  void copy(const HostMatrix& matrix, TensorView to);

  /// Of host matrices, so far: what loading reads of a checkpoint.
  std::uint64_t read_bytes() const noexcept { return read_bytes_; }

 private:
  static constexpr std::uint64_t chunk_bytes = 1 << 20;

  /// Enqueues the write of bytes of a host matrix.
  void send(const HostBytes& bytes, BufferView to);
  /// Room in the staging buffer for what one matrix needs, `bytes` of each part.
  std::vector<BufferView> reserve(std::initializer_list<std::uint64_t> bytes);
  TensorView stage(const HostMatrix& matrix, BufferView to);
  /// The matrix in what `stage_together` wrote, or absent.
  TensorView find_staged(const HostMatrix& matrix) const;
  BufferView stage(const CodeMatrix& codes, BufferView to);

  StreamView stream_;
  Purpose purpose_;
  bool pending_ = false;
  std::uint64_t read_bytes_ = 0;
  Buffer staging_, iota_;
  HostBytes staged_;  ///< what `stage_together` wrote, to the beginning of `staging_`
  std::int64_t staged_bytes_ = 0;
  std::vector<std::int32_t> iota_values_;
  std::deque<std::vector<unsigned char>> written_;  ///< on its way
  std::optional<PinnedMemory> chunks_;              ///< of files, on their way
  std::array<Event, 8> taken_;                      ///< by the device, each chunk
  std::size_t next_chunk_ = 0;
};

/// Errors: invalid_argument  the matrix is not [rows, columns] of f32, f16 or bf16; `what` names it
void expect_matrix(const HostMatrix& matrix, const char* what, std::int64_t rows, std::int64_t columns);

}  // namespace moecl
