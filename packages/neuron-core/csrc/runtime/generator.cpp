#include "generator.h"

#include <cstring>
#include <deque>
#include <mutex>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <c10/util/Exception.h>

#include "kernel_scope.h"

namespace torch_neuronx {

namespace {

// SplitMix64's finalizer (Steele, Lea, Flood 2014): neighbours in (seed, offset) give unrelated keys.
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

constexpr int64_t kStateBytes = 2 * sizeof(uint64_t);

} // namespace

NeuronGenerator::NeuronGenerator(c10::DeviceIndex device)
    : c10::GeneratorImpl(c10::Device(kNeuron, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(c10::detail::getNonDeterministicRandom()) {}

void NeuronGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

void NeuronGenerator::set_offset(uint64_t offset) {
  TORCH_CHECK(offset % 4 == 0, "The offset of a neuron generator is a multiple of 4, not ", offset, ".");
  offset_ = offset;
}

uint64_t NeuronGenerator::get_offset() const {
  return offset_;
}

uint64_t NeuronGenerator::current_seed() const {
  return seed_;
}

uint64_t NeuronGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

void NeuronGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(
      state.numel() == kStateBytes,
      "The state of a neuron generator has 16 bytes (seed, offset); this one has ",
      state.numel(),
      ". States do not carry over from another device type: seed with torch.manual_seed instead.");
  uint64_t words[2];
  std::memcpy(words, state.data(), sizeof(words));
  seed_ = words[0];
  set_offset(words[1]);
}

c10::intrusive_ptr<c10::TensorImpl> NeuronGenerator::get_state() const {
  auto state =
      at::detail::empty_cpu({kStateBytes}, c10::ScalarType::Byte, std::nullopt, c10::kCPU, std::nullopt, std::nullopt);
  const uint64_t words[2] = {seed_, offset_};
  std::memcpy(state.mutable_data_ptr(), words, sizeof(words));
  return state.getIntrusivePtr();
}

uint64_t NeuronGenerator::draw_key(uint64_t count) {
  const uint64_t key = mix(mix(seed_) ^ offset_);
  offset_ += (std::max<uint64_t>(count, 1) + 3) / 4 * 4;
  return key;
}

NeuronGenerator* NeuronGenerator::clone_impl() const {
  auto* clone = new NeuronGenerator(device().index());
  clone->seed_ = seed_;
  clone->offset_ = offset_;
  return clone;
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto* generators = new std::deque<at::Generator>(); // references stay valid as it grows
  const auto index = static_cast<size_t>(checked_index(device));
  std::lock_guard<std::mutex> lock(mutex);
  while (generators->size() <= index) {
    generators->push_back(at::make_generator<NeuronGenerator>(static_cast<c10::DeviceIndex>(generators->size())));
  }
  return (*generators)[index];
}

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<NeuronGenerator>(checked_index(device));
}

at::Generator cpu_stream(const std::optional<at::Generator>& generator, c10::DeviceIndex device, uint64_t count) {
  at::Generator source = generator.has_value() && generator->defined() ? *generator : default_generator(device);
  TORCH_CHECK(
      source.device().type() == kNeuron,
      "Expected a 'neuron' device type for generator but found '",
      source.device().type(),
      "'. Make it with torch.Generator(device='neuron').");
  uint64_t key = 0;
  {
    std::lock_guard<std::mutex> lock(source.mutex());
    key = static_cast<NeuronGenerator*>(source.unsafeGetGeneratorImpl())->draw_key(count);
  }
  static thread_local at::Generator stream = at::detail::createCPUGenerator();
  stream.set_current_seed(key);
  return stream;
}

} // namespace torch_neuronx
