// A stand-in for libnrt.so.1 that follows the documented C API: call order, handles, sizes and statuses.
// Its one program doubles float32 numbers: inputs "input_0" and "input_1", outputs "output_0" = 2 * input_0 and
// "output_1" = 2 * input_1. Each call is written to the file that NRT_STAND_IN_LOG names, and NRT_STAND_IN_FAIL
// ("nrt_execute=1003") makes a function return a status.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalid = 2, kInvalidHandle = 3, kResource = 4, kUninitialized = 13, kClosed = 14;
constexpr size_t kNumbers = 6, kCores = 2, kLimit = 1 << 20;

enum class State { kNew, kOpen, kClosed };
State state = State::kNew;
size_t used = 0;

struct Tensor {
  std::vector<char> bytes;
};
struct Model {
  int core;
};
using TensorSet = std::map<std::string, Tensor*>;

int enter(const char* name, bool needs_init) {
  if (const char* path = std::getenv("NRT_STAND_IN_LOG")) {
    std::FILE* log = std::fopen(path, "a");
    std::fprintf(log, "%s\n", name);
    std::fclose(log);
  }
  if (const char* fail = std::getenv("NRT_STAND_IN_FAIL")) {
    const size_t length = std::strlen(name);
    if (std::strncmp(fail, name, length) == 0 && fail[length] == '=') return std::atoi(fail + length + 1);
  }
  if (!needs_init || state == State::kOpen) return kSuccess;
  return state == State::kNew ? kUninitialized : kClosed;
}

} // namespace

#define ENTER(needs_init) \
  if (int status = enter(__func__, needs_init); status != kSuccess) return status

extern "C" {

struct nrt_tensor_info_t {
  char name[256];
  int usage;
  uint64_t size;
  int dtype;
  uint32_t* shape;
  uint32_t ndim;
};
static_assert(sizeof(nrt_tensor_info_t) == 296);
struct nrt_tensor_info_array_t {
  uint64_t tensor_count;
  nrt_tensor_info_t tensors[4];
};

int nrt_init(int framework, const char* fw_version, const char* fal_version) {
  if (state == State::kClosed) return kClosed;
  ENTER(false);
  if (framework < 1 || framework > 5 || !fw_version || !fal_version) return kInvalid;
  state = State::kOpen;
  return kSuccess;
}

void nrt_close() {
  enter("nrt_close", false);
  state = State::kClosed;
}

int nrt_get_version(void* out, size_t size) {
  ENTER(false);
  if (size != 224) return kInvalid;
  const uint64_t numbers[4] = {2, 35, 30, 0};
  std::memset(out, 0, size);
  std::memcpy(out, numbers, sizeof(numbers));
  return kSuccess;
}

int nrt_get_visible_vnc_count(uint32_t* count) {
  ENTER(false);
  *count = kCores;
  return kSuccess;
}

int nrt_get_instance_info(void* out, size_t size) {
  ENTER(false);
  if (size != 32) return kInvalid;
  std::memset(out, 0, size);
  const char* family = std::getenv("NRT_STAND_IN_FAMILY");
  const uint32_t number = family ? static_cast<uint32_t>(std::atoi(family)) : 14;
  std::memcpy(out, &number, sizeof(number));
  std::strcpy(static_cast<char*>(out) + 8, "NCv4");
  return kSuccess;
}

int nrt_get_vnc_memory_stats(uint32_t core, size_t* stats, size_t size, size_t* written) {
  ENTER(true);
  if (core >= kCores || size != 2 * sizeof(size_t)) return kInvalid;
  stats[0] = used;
  stats[1] = kLimit;
  *written = size;
  return kSuccess;
}

int nrt_load(const void* neff, size_t size, int32_t core, int32_t count, void** model) {
  ENTER(true);
  if (!neff || size < 1024 || count != -1 || core >= static_cast<int32_t>(kCores)) return kInvalid;
  *model = new Model{core};
  return kSuccess;
}

int nrt_unload(void* model) {
  ENTER(true);
  if (!model) return kInvalidHandle;
  delete static_cast<Model*>(model);
  return kSuccess;
}

int nrt_get_model_tensor_info(void* model, nrt_tensor_info_array_t** out) {
  ENTER(true);
  if (!model) return kInvalidHandle;
  auto* array = new nrt_tensor_info_array_t{};
  array->tensor_count = 4;
  const char* names[4] = {"output_0", "input_0", "output_1", "input_1"};
  for (int i = 0; i < 4; ++i) {
    nrt_tensor_info_t& info = array->tensors[i];
    std::strcpy(info.name, names[i]);
    info.usage = i % 2 == 0; // outputs first: the reader must not rely on the order
    info.size = kNumbers * sizeof(float);
    info.dtype = 0xA;
    info.shape = new uint32_t[2]{2, 3};
    info.ndim = 2;
  }
  *out = array;
  return kSuccess;
}

int nrt_free_model_tensor_info(nrt_tensor_info_array_t* array) {
  ENTER(true);
  for (nrt_tensor_info_t& info : array->tensors) delete[] info.shape;
  delete array;
  return kSuccess;
}

int nrt_tensor_allocate(int placement, int core, size_t size, const char*, void** out) {
  ENTER(true);
  if (placement != 0 || core < 0 || core >= static_cast<int>(kCores)) return kInvalid;
  if (used + size > kLimit) return kResource;
  used += size;
  *out = new Tensor{std::vector<char>(size)};
  return kSuccess;
}

void nrt_tensor_free(void** tensor) {
  enter("nrt_tensor_free", true);
  used -= static_cast<Tensor*>(*tensor)->bytes.size();
  delete static_cast<Tensor*>(*tensor);
  *tensor = nullptr;
}

int nrt_tensor_write(void* tensor, const void* data, size_t offset, size_t size) {
  ENTER(true);
  auto& bytes = static_cast<Tensor*>(tensor)->bytes;
  if (offset + size > bytes.size()) return kInvalid;
  std::memcpy(bytes.data() + offset, data, size);
  return kSuccess;
}

int nrt_tensor_read(const void* tensor, void* data, size_t offset, size_t size) {
  ENTER(true);
  const auto& bytes = static_cast<const Tensor*>(tensor)->bytes;
  if (offset + size > bytes.size()) return kInvalid;
  std::memcpy(data, bytes.data() + offset, size);
  return kSuccess;
}

int nrt_allocate_tensor_set(void** out) {
  ENTER(true);
  *out = new TensorSet;
  return kSuccess;
}

void nrt_destroy_tensor_set(void** set) {
  enter("nrt_destroy_tensor_set", true);
  delete static_cast<TensorSet*>(*set);
  *set = nullptr;
}

int nrt_add_tensor_to_tensor_set(void* set, const char* name, void* tensor) {
  ENTER(true);
  (*static_cast<TensorSet*>(set))[name] = static_cast<Tensor*>(tensor);
  return kSuccess;
}

int nrt_execute(void* model, const void* inputs, void* outputs) {
  ENTER(true);
  if (!model) return kInvalidHandle;
  for (const char* index : {"0", "1"}) {
    const auto& from = static_cast<const TensorSet*>(inputs)->at(std::string("input_") + index)->bytes;
    auto& to = static_cast<TensorSet*>(outputs)->at(std::string("output_") + index)->bytes;
    for (size_t i = 0; i < kNumbers; ++i) {
      float number;
      std::memcpy(&number, from.data() + i * sizeof(float), sizeof(float));
      number *= 2;
      std::memcpy(to.data() + i * sizeof(float), &number, sizeof(float));
    }
  }
  return kSuccess;
}

} // extern "C"
