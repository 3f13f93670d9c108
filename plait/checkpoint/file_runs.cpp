#include "plait/checkpoint/file_runs.h"

#include "plait/base/error.h"

namespace plait {

void for_each_file_run(const Parameter& parameter, const std::function<void(const FileRun&)>& f) {
  if (!parameter.transposed) {
    for_each_run(parameter, [&](int64_t global_begin, int64_t local_begin, int64_t length) {
      if (length > 0) f({global_begin, length, local_begin, 1});
    });
    return;
  }
  // Stored [R, C] (local [r, c]), file [C, R]: a stored column is a file row.
  auto stored = stored_global_shape(parameter);
  PLAIT_CHECK(stored.size() == 2, parameter.name);
  int64_t num_rows = stored[0], local_columns = parameter.local_shape[1];
  std::vector<ShardPiece> rows{{0, 0, stored[0]}}, columns{{0, 0, stored[1]}};
  if (parameter.shard_axis == 0) rows = parameter.pieces;
  if (parameter.shard_axis == 1) columns = parameter.pieces;
  for (const auto& column : columns) {
    for (int64_t i = 0; i < column.size; ++i) {
      for (const auto& row : rows) {
        if (row.size == 0) continue;
        f({(column.global_begin + i) * num_rows + row.global_begin, row.size, row.local_begin * local_columns + column.local_begin + i,
           local_columns});
      }
    }
  }
}

}  // namespace plait
