// The random generator of a core: counter-based, its whole state two 64-bit words (seed, offset).
#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

#include "device.h"

namespace torch_neuronx {

class NeuronGenerator final : public c10::GeneratorImpl {
 public:
  explicit NeuronGenerator(c10::DeviceIndex device);
  static c10::DeviceType device_type() {
    return kNeuron;
  }

  void set_current_seed(uint64_t seed) override; // also rewinds the offset
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;                              // a fresh one from the system
  void set_state(const c10::TensorImpl& state) override; // 16 bytes: seed, offset
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // The key of the draws at the present offset; the offset moves on by `count` draws, rounded up to a multiple of four.
  uint64_t draw_key(uint64_t count);

 private:
  NeuronGenerator* clone_impl() const override;
  uint64_t seed_;
  uint64_t offset_ = 0;
};

// One per core, made on first use. A negative index means the current core.
const at::Generator& default_generator(c10::DeviceIndex device);
at::Generator new_generator(c10::DeviceIndex device);

// A CPU generator whose stream is the one at `generator`'s present offset (the core's default one when undefined).
// Raises when `generator` belongs to another device type. Owned by the calling thread, valid until its next call.
at::Generator cpu_stream(const std::optional<at::Generator>& generator, c10::DeviceIndex device, uint64_t count);

} // namespace torch_neuronx
