// libplait_openmpi.so and libplait_mpich.so: the calls of MPI behind the table of plait/comm/mpi_plugin.h. Compiled once for each library.
#include <mpi.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <stdexcept>

#include "plait/comm/mpi_plugin.h"

namespace plait::detail {

struct MpiGroup {
  MPI_Comm communicator = MPI_COMM_NULL;
  int rank = 0, size = 1;
};

struct MpiRequest {
  std::vector<MPI_Request> parts;
  std::vector<int> bytes, offsets, own_bytes, own_offsets;  // MPI reads them until the operation is over
  int64_t expected_bytes = -1;                              // of a receive
};

namespace {

constexpr int64_t kLargestPart = int64_t{1} << 30;  // counts are int

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0, error_class = MPI_ERR_OTHER;
  MPI_Error_class(code, &error_class);
  MPI_Error_string(code, text, &length);
  std::string message = std::string(call) + ": " + std::string(text, static_cast<size_t>(length));
  switch (error_class) {
    case MPI_ERR_BUFFER:
    case MPI_ERR_COUNT:
    case MPI_ERR_TYPE:
    case MPI_ERR_TAG:
    case MPI_ERR_COMM:
    case MPI_ERR_RANK:
    case MPI_ERR_ROOT:
    case MPI_ERR_ARG:
    case MPI_ERR_TRUNCATE:
    case MPI_ERR_REQUEST: throw std::logic_error(message);
    default: throw std::runtime_error(message);
  }
}

int count_of(int64_t bytes) {
  if (bytes < 0 || bytes > kLargestPart) throw std::logic_error("a piece of " + std::to_string(bytes) + " bytes is too large for MPI");
  return static_cast<int>(bytes);
}

std::string library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string line(text, static_cast<size_t>(length));
  // "MPICH Version:      4.0.2\nMPICH Release date: ...", "Open MPI v4.1.4, package: ..."
  line.resize(std::min(line.find_first_of(",\n"), line.size()));
  line.erase(std::unique(line.begin(), line.end(), [](char a, char b) { return (a == ' ' || a == '\t') && (b == ' ' || b == '\t'); }),
             line.end());
  std::replace(line.begin(), line.end(), '\t', ' ');
  return line;
}

void start() {
  int started = 0, provided = 0;
  MPI_Initialized(&started);
  if (started) throw std::logic_error("MPI has been started in this process before");
  check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "MPI_Init_thread");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  if (provided < MPI_THREAD_SERIALIZED) throw std::runtime_error("this MPI library is built without MPI_THREAD_SERIALIZED");
}

void end() { check(MPI_Finalize(), "MPI_Finalize"); }

int rank() {
  int value = 0;
  check(MPI_Comm_rank(MPI_COMM_WORLD, &value), "MPI_Comm_rank");
  return value;
}

int size() {
  int value = 0;
  check(MPI_Comm_size(MPI_COMM_WORLD, &value), "MPI_Comm_size");
  return value;
}

MpiGroup* make_group(const std::vector<int>& ranks, int tag) {
  auto made = std::make_unique<MpiGroup>();
  MPI_Group world = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
  check(MPI_Group_incl(world, static_cast<int>(ranks.size()), ranks.data(), &members), "MPI_Group_incl");
  check(MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &made->communicator), "MPI_Comm_create_group");
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(made->communicator, MPI_ERRORS_RETURN);
  check(MPI_Comm_rank(made->communicator, &made->rank), "MPI_Comm_rank");
  check(MPI_Comm_size(made->communicator, &made->size), "MPI_Comm_size");
  return made.release();
}

std::unique_ptr<MpiRequest> new_request() {
  auto request = std::make_unique<MpiRequest>();
  request->parts.resize(1, MPI_REQUEST_NULL);
  return request;
}

std::vector<int> offsets_of(const std::vector<int>& bytes) {
  std::vector<int> offsets(bytes.size());
  std::exclusive_scan(bytes.begin(), bytes.end(), offsets.begin(), 0);
  return offsets;
}

// `bytes` bytes that repeat every `stride`.
class Rows {
 public:
  Rows(int64_t bytes, int64_t stride) : count_(count_of(bytes)) {
    if (bytes == stride || bytes == 0) return;
    MPI_Datatype row = MPI_DATATYPE_NULL;
    check(MPI_Type_contiguous(count_, MPI_BYTE, &row), "MPI_Type_contiguous");
    check(MPI_Type_create_resized(row, 0, static_cast<MPI_Aint>(stride), &type_), "MPI_Type_create_resized");
    check(MPI_Type_commit(&type_), "MPI_Type_commit");
    MPI_Type_free(&row);
    count_ = 1;
    made_ = true;
  }
  ~Rows() {  // an operation under way keeps it
    if (made_) MPI_Type_free(&type_);
  }
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;
  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int count_;
  MPI_Datatype type_ = MPI_BYTE;
  bool made_ = false;
};

MpiRequest* all_gather(MpiGroup* group, const void* in, void* out, int64_t bytes, int64_t stride) {
  auto request = new_request();
  Rows rows(bytes, stride);
  check(MPI_Iallgather(in, count_of(bytes), MPI_BYTE, out, rows.count(), rows.type(), group->communicator, request->parts.data()),
        "MPI_Iallgather");
  return request.release();
}

MpiRequest* all_gather_parts(MpiGroup* group, void* buffer, const std::vector<int>& bytes) {
  auto request = new_request();
  request->bytes = bytes;
  request->offsets = offsets_of(bytes);
  check(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, buffer, request->bytes.data(), request->offsets.data(), MPI_BYTE, group->communicator,
                        request->parts.data()),
        "MPI_Iallgatherv");
  return request.release();
}

MpiRequest* all_to_all(MpiGroup* group, const void* in, int64_t stride, void* out, int64_t bytes) {
  auto request = new_request();
  Rows rows(bytes, stride);
  check(MPI_Ialltoall(in, rows.count(), rows.type(), out, count_of(bytes), MPI_BYTE, group->communicator, request->parts.data()),
        "MPI_Ialltoall");
  return request.release();
}

MpiRequest* all_to_all_parts(MpiGroup* group, const void* in, const std::vector<int>& bytes, void* out) {
  auto request = new_request();
  request->bytes = bytes;
  request->offsets = offsets_of(bytes);
  request->own_bytes.assign(bytes.size(), bytes[static_cast<size_t>(group->rank)]);
  request->own_offsets = offsets_of(request->own_bytes);
  check(MPI_Ialltoallv(in, request->bytes.data(), request->offsets.data(), MPI_BYTE, out, request->own_bytes.data(),
                       request->own_offsets.data(), MPI_BYTE, group->communicator, request->parts.data()),
        "MPI_Ialltoallv");
  return request.release();
}

MpiRequest* broadcast(MpiGroup* group, void* buffer, int64_t bytes, int root) {
  auto request = new_request();
  check(MPI_Ibcast(buffer, count_of(bytes), MPI_BYTE, root, group->communicator, request->parts.data()), "MPI_Ibcast");
  return request.release();
}

MpiRequest* barrier(MpiGroup* group) {
  auto request = new_request();
  check(MPI_Ibarrier(group->communicator, request->parts.data()), "MPI_Ibarrier");
  return request.release();
}

// Messages of one pair and tag arrive in order, so a long one goes in parts. post(offset, bytes, part)
template <class Post>
MpiRequest* start_parts(int64_t bytes, const Post& post) {
  auto request = std::make_unique<MpiRequest>();
  request->parts.resize(static_cast<size_t>(std::max<int64_t>(1, (bytes + kLargestPart - 1) / kLargestPart)), MPI_REQUEST_NULL);
  for (size_t i = 0; i < request->parts.size(); ++i) {
    const int64_t offset = static_cast<int64_t>(i) * kLargestPart;
    post(offset, static_cast<int>(std::min(kLargestPart, bytes - offset)), &request->parts[i]);
  }
  return request.release();
}

MpiRequest* send(MpiGroup* group, const void* buffer, int64_t bytes, int destination, int tag) {
  return start_parts(bytes, [&](int64_t offset, int count, MPI_Request* part) {
    check(MPI_Isend(static_cast<const char*>(buffer) + offset, count, MPI_BYTE, destination, tag, group->communicator, part), "MPI_Isend");
  });
}

MpiRequest* receive(MpiGroup* group, void* buffer, int64_t bytes, int source, int tag) {
  MpiRequest* request = start_parts(bytes, [&](int64_t offset, int count, MPI_Request* part) {
    check(MPI_Irecv(static_cast<char*>(buffer) + offset, count, MPI_BYTE, source, tag, group->communicator, part), "MPI_Irecv");
  });
  request->expected_bytes = bytes;
  return request;
}

bool finished(MpiRequest* request) {
  std::unique_ptr<MpiRequest> owned(request);
  while (!request->parts.empty()) {
    int done = 0;
    MPI_Status status{};
    check(MPI_Test(&request->parts.back(), &done, &status), "MPI_Test");
    if (!done) {
      owned.release();
      return false;
    }
    int count = 0;
    if (request->expected_bytes >= 0) {
      check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
      request->expected_bytes -= count;
    }
    request->parts.pop_back();
  }
  if (request->expected_bytes > 0)
    throw std::logic_error("the message is " + std::to_string(request->expected_bytes) + " bytes shorter than its receive");
  return true;
}

constexpr MpiPlugin kPlugin{
    kMpiPluginVersion, library,          start,     end,     rank, size,    make_group, all_gather, all_gather_parts,
    all_to_all,        all_to_all_parts, broadcast, barrier, send, receive, finished};

}  // namespace
}  // namespace plait::detail

extern "C" __attribute__((visibility("default"))) const plait::detail::MpiPlugin* plait_mpi_plugin() { return &plait::detail::kPlugin; }
