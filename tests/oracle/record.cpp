// Runs a script of operations through PyTorch's own caching allocator (libc10_cuda.so) on the fake device and prints the script with
// what came of each operation: the recording that test_alloc_oracle.c compares our allocator with.
// Script and recording: tests/oracle/README.md. Compiled once per PyTorch version, TORCH = 100 * major + minor.
#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#if TORCH >= 203
#include <c10/cuda/CUDAAllocatorConfig.h>
#endif
#if TORCH >= 212
#include <c10/cuda/PeerToPeerAccess.h>
#endif

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>

#include "fake_cuda.h"

// Exported, but in no installed header: the part of PyTorch that knows contexts sets it.
namespace c10::cuda::_internal {
void setHasPrimaryContext(bool (*function)(c10::DeviceIndex));
}

namespace allocator = c10::cuda::CUDACachingAllocator;
using MempoolId = c10::cuda::MempoolId_t;

static std::map<uint64_t, void *> live;
static std::vector<int64_t> last_stats;
static std::string observed; // by the out-of-memory observer during this operation
static FILE *messages;

static c10::cuda::CUDAStream stream_of(uint64_t handle) {
  if (!handle) return c10::cuda::getDefaultCUDAStream(0);
  return c10::cuda::getStreamFromExternal(reinterpret_cast<cudaStream_t>(handle), 0);
}

static uint64_t units(const void *p) { return reinterpret_cast<uint64_t>(p) >> 9; }

// ---- statistics: "index=value" for each that changed since they were last printed ----

template <typename Stat> static void push(std::vector<int64_t> &out, const Stat &s) {
  out.insert(out.end(), {s.current, s.peak, s.allocated, s.freed});
}

static std::vector<int64_t> stats_now() {
  auto s = allocator::getDeviceStats(0);
  std::vector<int64_t> out;
  for (const auto *family : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes, &s.reserved_bytes,
                             &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes}) {
    for (const auto &stat : *family) push(out, stat);
  }
  push(out, s.oversize_allocations);
  push(out, s.oversize_segments);
  out.insert(out.end(), {s.num_alloc_retries, s.num_ooms, s.max_split_size});
#if TORCH >= 204
  out.insert(out.end(), {s.num_sync_all_streams, s.num_device_alloc, s.num_device_free});
#endif
  return out;
}

static void print_stats() {
  auto now = stats_now();
  last_stats.resize(now.size());
  for (size_t i = 0; i < now.size(); i++) {
    if (now[i] != last_stats[i]) std::printf(" %zu=%" PRId64, i, now[i]);
  }
  last_stats = now;
}

// ---- snapshots ----

static std::string segments_text(const allocator::SnapshotInfo &snapshot) {
  std::ostringstream out;
  out << std::hex;
  for (const auto &s : snapshot.segments) {
    out << " [" << (static_cast<uint64_t>(s.address) >> 9) << ' ' << (s.is_large ? 'L' : 'S') << (s.is_expandable ? 'E' : 'e')
        << reinterpret_cast<uint64_t>(s.stream);
    if (s.owner_private_pool_id.first || s.owner_private_pool_id.second)
      out << ' ' << s.owner_private_pool_id.first << '.' << s.owner_private_pool_id.second;
    for (const auto &b : s.blocks) {
      out << ' ' << (static_cast<uint64_t>(b.size) >> 9);
      if (b.active) out << (b.allocated ? 'a' : 'p') << b.requested_size;
    }
    out << ']';
  }
  return out.str();
}

static std::string trace_text(const allocator::SnapshotInfo &snapshot) {
  static const char letters[] = "afcmuMUso"; // by TraceEntry::Action
  std::ostringstream out;
  out << std::hex;
  for (const auto &trace : snapshot.device_traces) {
    for (const auto &e : trace) {
      bool address = e.action_ != allocator::TraceEntry::OOM;
      out << ' ' << letters[e.action_] << (address ? static_cast<uint64_t>(e.addr_) >> 9 : static_cast<uint64_t>(e.addr_)) << ','
          << static_cast<uint64_t>(e.size_) << ',' << reinterpret_cast<uint64_t>(e.stream_);
    }
  }
  return out.str();
}

static uint64_t hash_of(const std::string &text) { // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3;
  return hash;
}

// ---- operations ----

static void allocate(uint64_t id, uint64_t bytes, uint64_t stream) {
  try {
    void *p = allocator::raw_alloc_with_stream(bytes, reinterpret_cast<cudaStream_t>(stream));
    live[id] = p;
    std::printf("%s =%" PRIx64, fake_take_log(), units(p));
  } catch (const c10::OutOfMemoryError &e) {
    if (messages) std::fprintf(messages, "%s\n", e.what_without_backtrace());
    std::printf("%s !%s", fake_take_log(), observed.c_str());
  }
}

static void record_stream(void *p, uint64_t stream) {
  c10::DataPtr data(p, p, allocator::get()->raw_deleter(), c10::Device(c10::kCUDA, 0));
  allocator::recordStream(data, stream_of(stream));
  data.release_context();
}

static void set_conf(const std::string &text) {
#if TORCH >= 210
  c10::CachingAllocator::setAllocatorSettings(text);
#else
  allocator::setAllocatorSettings(text);
#endif
}

static void start_history() {
#if TORCH >= 211
  allocator::recordHistory(true, nullptr, 1u << 30, allocator::RecordContext::NEVER, true, {});
#elif TORCH >= 208
  allocator::recordHistory(true, nullptr, 1u << 30, allocator::RecordContext::NEVER, true);
#else
  allocator::recordHistory(true, nullptr, 1u << 30, allocator::RecordContext::NEVER);
#endif
}

// Until 2.12 the allocator took any open pool for a graph capture; since then it is told.
static void set_capturing(bool on) {
  fake_set_capturing(on);
#if TORCH >= 213
  on ? allocator::markCaptureBegin(0) : allocator::markCaptureEnd(0);
#endif
}

static void run_pool(char op, MempoolId id, bool capture) {
  switch (op) {
    case 'B':
#if TORCH >= 204
      allocator::beginAllocateToPool(0, id, [](cudaStream_t) { return true; });
#else // one stream at a time: the default one
      allocator::beginAllocateStreamToPool(0, nullptr, id);
#endif
      if (capture) set_capturing(true);
      break;
    case 'E':
      if (capture) set_capturing(false);
#if TORCH >= 204
      allocator::endAllocateToPool(0, id);
#else
      allocator::endAllocateStreamToPool(0, nullptr);
#endif
      break;
    case 'P':
#if TORCH >= 209
      allocator::createOrIncrefPool(0, id);
#endif
      break;
    default: allocator::releasePool(0, id); break;
  }
}

static void run(const std::string &line) {
  std::istringstream in(line.substr(1));
  uint64_t a = 0, b = 0, c = 0;
  observed.clear();
  char op = line[0];
  if (op == 'C') {
    set_conf(line.size() > 2 ? line.substr(2) : "");
  } else if (op == 'F') {
    double fraction;
    in >> fraction;
    allocator::setMemoryFraction(fraction, 0);
  } else {
    in >> std::hex >> a >> b >> c;
  }
  auto found = live.find(a);
  switch (op) {
    case 'a': allocate(a, b, c); return;
    case 'f':
      if (found == live.end()) break;
      allocator::raw_delete(found->second);
      live.erase(found);
      break;
    case 'r':
      if (found != live.end()) record_stream(found->second, b);
      break;
    case 't': fake_complete_events(a, b); break;
    case 'e': allocator::emptyCache(); break;
    case 's': print_stats(); break;
    case 'S': std::printf("%s", segments_text(allocator::snapshot()).c_str()); break;
    case 'H': std::printf(" %" PRIx64, hash_of(segments_text(allocator::snapshot()))); break;
    case 'T': std::printf("%s", trace_text(allocator::snapshot()).c_str()); break;
    case 'G': std::printf(" %" PRIx64, hash_of(trace_text(allocator::snapshot()))); break;
    case 'z': allocator::resetPeakStats(0); break;
    case 'Z': allocator::resetAccumulatedStats(0); break;
    case 'h': start_history(); break;
    case 'B': case 'E': case 'P': case 'X': run_pool(op, {a, b}, c != 0); break;
    default: break;
  }
  std::printf("%s", fake_take_log());
}

static void print_error(const char *what) {
  std::string text = what;
  std::printf(" ?%s", text.substr(0, text.find('\n')).c_str());
}

static void start() {
  c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
#if TORCH >= 212
  c10::cuda::detail::init_p2p_access_cache(1);
#endif
  allocator::init(1);
  allocator::attachOutOfMemoryObserver([](int64_t, size_t size, size_t total, size_t free) {
    std::ostringstream out;
    out << std::hex << size << ',' << total << ',' << free;
    observed = out.str();
  });
  fake_take_log();
}

int main(int argc, char **argv) {
  std::ifstream script(argc > 1 ? argv[1] : "/dev/stdin");
  messages = argc > 2 ? std::fopen(argv[2], "a") : nullptr;
  std::string line;
  bool started = false;
  while (std::getline(script, line)) {
    if (line.empty() || line[0] == '#') {
      std::puts(line.c_str());
      continue;
    }
    if (line[0] == 'D') fake_set_capacity(std::strtoull(line.c_str() + 1, nullptr, 16));
    // Settings before anything else are what the environment would have set: known when the allocator starts.
    if (!started && line[0] != 'D' && line[0] != 'C') {
      start();
      started = true;
    }
    std::printf("%s |", line.c_str());
    if (line[0] != 'D') {
      try {
        run(line);
      } catch (const c10::Error &e) {
        print_error(e.what_without_backtrace());
      } catch (const std::exception &e) { // numbers that do not parse
        print_error(e.what());
      }
    }
    std::puts("");
  }
  return 0;
}
