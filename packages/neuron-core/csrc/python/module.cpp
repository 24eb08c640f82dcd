// torch_neuronx._C: what the Python half asks of libtorch_neuronx.so. Bindings only; every rule lives below.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/profiler/combined_traceback.h>
#include <torch/csrc/utils/pybind.h>

#include "alias.h"
#include "caching_allocator.h"
#include "cpu_allocator.h"
#include "device.h"
#include "error.h"
#include "generator.h"
#include "kernel_scope.h"
#include "op_info.h"

namespace py = pybind11;

namespace torch_neuronx {

namespace {

// A Python exception on its way through C++ frames that know nothing of pybind11.
template <class Function>
auto call_python(Function&& function) {
  py::gil_scoped_acquire gil;
  try {
    return function();
  } catch (py::error_already_set& error) {
    error.restore();
    python_error carried;
    carried.persist();
    throw carried;
  }
}

// Callables given by the Python half. Leaked on purpose: kernels may outlive the interpreter's modules.
py::function* kept(py::function function) {
  return new py::function(std::move(function));
}

void install(
    py::function initializer,
    py::function core_counter,
    py::function error_raiser,
    py::function fallback_listener,
    py::function float64_listener) {
  auto* open = kept(std::move(initializer));
  set_initializer([open] { call_python([&] { (*open)(); }); });
  auto* count = kept(std::move(core_counter));
  set_core_counter([count] { return call_python([&] { return (*count)().cast<int>(); }); });
  auto* raise = kept(std::move(error_raiser));
  set_error_raiser([raise](ErrorKind kind, const std::string& message) {
    call_python([&] { (*raise)(static_cast<int>(kind), message); });
  });
  auto* hear_fallback = kept(std::move(fallback_listener));
  auto* hear_float64 = kept(std::move(float64_listener));
  set_listeners(
      {[hear_fallback](const std::string& name, const std::string& reason) {
         return call_python([&] { return (*hear_fallback)(name, reason).cast<bool>(); });
       },
       [hear_float64] { return call_python([&] { return (*hear_float64)().cast<bool>(); }); }});
}

void open_device(
    int count, size_t hbm_bytes, bool protect, size_t max_split_bytes, size_t max_non_split_rounding_bytes) {
  initialize({count, hbm_bytes, protect, max_split_bytes, max_non_split_rounding_bytes});
  install_cpu_allocator();
  if (protect) {
    enable_protection();
  }
}

c10::DeviceIndex index_of(int64_t index) {
  TORCH_CHECK(index >= 0, "A Neuron core has an index of 0 or more, not ", index, ".");
  return checked_index(index);
}

py::dict snapshot() {
  MemorySnapshot taken;
  {
    py::gil_scoped_release no_gil; // threads that allocate may wait for the GIL with the allocator's lock held
    taken = CachingAllocator::get().snapshot();
  }
  std::vector<torch::CapturedTraceback*> tracebacks;
  std::vector<py::dict> waiting;
  auto add_frames = [&](const std::shared_ptr<c10::GatheredContext>& context, py::dict& entry) {
    if (auto* traceback = dynamic_cast<torch::CapturedTraceback*>(context.get())) {
      tracebacks.push_back(traceback);
      waiting.push_back(entry);
    } else {
      entry["frames"] = py::list();
    }
  };
  py::list segments;
  for (const auto& segment : taken.segments) {
    py::dict out;
    out["device"] = static_cast<int>(segment.device);
    out["address"] = segment.address;
    out["total_size"] = segment.total_size;
    out["allocated_size"] = segment.allocated_size;
    out["active_size"] = segment.allocated_size;
    out["requested_size"] = segment.requested_size;
    out["stream"] = 0;
    out["segment_type"] = segment.is_large ? "large" : "small";
    out["segment_pool_id"] = py::make_tuple(0, 0);
    out["is_expandable"] = false;
    out["frames"] = py::list();
    py::list blocks;
    for (const auto& block : segment.blocks) {
      py::dict entry;
      entry["address"] = block.address;
      entry["size"] = block.size;
      entry["requested_size"] = block.requested;
      entry["state"] = block.in_use ? "active_allocated" : "inactive";
      add_frames(block.context, entry);
      blocks.append(entry);
    }
    out["blocks"] = blocks;
    segments.append(out);
  }
  py::list traces;
  for (const auto& records : taken.traces) {
    py::list trace;
    for (const auto& record : records) {
      py::dict entry;
      entry["action"] = record.action;
      entry[std::string_view(record.action) == "oom" ? "device_free" : "addr"] = record.address;
      entry["size"] = record.size;
      entry["stream"] = 0;
      entry["time_us"] = record.time_us;
      add_frames(record.context, entry);
      trace.append(entry);
    }
    traces.append(trace);
  }
  const auto symbolized = torch::symbolize(tracebacks);
  std::vector<py::dict> frames;
  for (const auto& frame : symbolized.all_frames) {
    py::dict entry;
    entry["filename"] = frame.filename;
    entry["name"] = frame.funcname;
    entry["line"] = frame.lineno;
    frames.push_back(entry);
  }
  for (size_t i = 0; i < waiting.size(); ++i) {
    py::list stack;
    for (const auto frame : symbolized.tracebacks[i]) {
      stack.append(frames[frame]);
    }
    waiting[i]["frames"] = stack;
  }
  py::dict result;
  result["segments"] = segments;
  result["device_traces"] = traces;
  result["allocator_settings"] = py::dict();
  result["external_annotations"] = py::list();
  return result;
}

// Holds a KernelScope for Python's `with`.
class PythonKernelScope {
 public:
  explicit PythonKernelScope(int64_t device) : device_(device) {}
  void enter() {
    ensure_initialized();
    TORCH_CHECK(scope_ == nullptr, "This kernel scope is already open.");
    scope_ = std::make_unique<KernelScope>(checked_index(device_));
  }
  void exit(const py::args& exception) {
    (void)exception;
    scope_.reset();
  }

 private:
  int64_t device_;
  std::unique_ptr<KernelScope> scope_;
};

} // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "Bindings of libtorch_neuronx.so; private to torch_neuronx.";

  // Opening
  module.def("install", &install);
  module.def(
      "open_device",
      &open_device,
      py::kw_only(),
      py::arg("count"),
      py::arg("hbm_bytes"),
      py::arg("protect"),
      py::arg("max_split_bytes"),
      py::arg("max_non_split_rounding_bytes"));
  module.def("is_initialized", &is_initialized);
  module.def("is_in_bad_fork", &in_bad_fork);
  module.def("raise_bad_fork", torch::wrap_pybind_function(&raise_bad_fork));

  // Cores
  module.def("device_count", [] { return static_cast<int>(device_count()); });
  module.def("current_device", [] { return static_cast<int>(current_device()); });
  module.def("set_device", torch::wrap_pybind_function([](int64_t index) { set_current_device(index_of(index)); }));
  module.def("exchange_device", torch::wrap_pybind_function([](int64_t index) {
               return static_cast<int>(index < 0 ? current_device() : exchange_device(index_of(index)));
             }));
  module.def("check_device", torch::wrap_pybind_function([](int64_t index) {
               return static_cast<int>(checked_index(index));
             }));

  // Random numbers
  module.def("default_generator", torch::wrap_pybind_function([](int64_t index) {
               return default_generator(index_of(index));
             }));
  module.def("draw_seed", torch::wrap_pybind_function([](int64_t index) {
               auto generator = default_generator(index_of(index));
               std::lock_guard<std::mutex> lock(generator.mutex());
               return static_cast<int64_t>(
                   static_cast<NeuronGenerator*>(generator.unsafeGetGeneratorImpl())->draw_key(4) >> 1);
             }));

  // Memory
  module.def("set_memory_limit", torch::wrap_pybind_function([](int64_t index, size_t bytes) {
               CachingAllocator::get().set_limit(index_of(index), bytes);
             }));
  module.def("memory_limit", torch::wrap_pybind_function([](int64_t index) {
               return CachingAllocator::get().limit(index_of(index));
             }));
  module.def(
      "record_memory_history",
      torch::wrap_pybind_function([](bool enabled, size_t max_entries, bool stacks) {
        py::gil_scoped_release no_gil;
        CachingAllocator::get().record_history(enabled, max_entries, stacks);
      }),
      py::arg("enabled"),
      py::arg("max_entries"),
      py::arg("stacks"));
  module.def("memory_snapshot", torch::wrap_pybind_function(&snapshot));

  // Operators
  module.def("set_op_statuses", [](const std::vector<std::tuple<std::string, int, std::string>>& rows) {
    std::vector<OpStatusRow> table;
    table.reserve(rows.size());
    for (const auto& [name, status, reason] : rows) {
      table.push_back({name, static_cast<OpStatus>(status), reason});
    }
    set_op_statuses(table);
  });
  module.def(
      "set_policy",
      [](bool relaxed, bool fallback_only_unimplemented, bool strict_int64) {
        set_policy({relaxed, fallback_only_unimplemented});
        set_mode(kModeStrictInt64, strict_int64 && !relaxed);
      },
      py::kw_only(),
      py::arg("relaxed"),
      py::arg("fallback_only_unimplemented"),
      py::arg("strict_int64"));
  module.def("set_op_tracking", &set_op_tracking);
  module.def("op_tracking", [] { return (mode_bits.load() & kModeTrackOps) != 0; });
  module.def("clear_op_tracking", &clear_op_tracking);
  module.def("executed_ops", &executed_ops);
  module.def("fallback_counts", &fallback_counts);

  // Doors for the other packages
  module.def("cpu_alias", torch::wrap_pybind_function(&cpu_alias));
  module.def("adopt", torch::wrap_pybind_function([](const at::Tensor& tensor, int64_t device) {
               return adopt(tensor, index_of(device));
             }));
  py::class_<PythonKernelScope>(module, "KernelScope")
      .def(py::init<int64_t>())
      .def("__enter__", torch::wrap_pybind_function(&PythonKernelScope::enter))
      .def("__exit__", torch::wrap_pybind_function(&PythonKernelScope::exit));
  module.def("kernel_scope", [](int64_t device) { return std::make_unique<PythonKernelScope>(device); });
}

} // namespace torch_neuronx
