/* Whose a report is and which memory it is about, by the words around it: frameworks that are not PyTorch, libraries
 * that take device memory past its allocator, interfaces that programs of many kinds use, the machine's memory, a
 * device's, a chip's. */
#include "explain/match.h"
#include "explain/report_parts.h"

typedef struct speaker {
  const char *word, *name;
  bool plain; /* an ordinary word too: a name only where it stands as code has it, "llama_model", "[dali]", "/burn/" */
} speaker;

static const speaker frameworks[] = {{"tensorflow", "tensorflow", false},
                                     {"streamexecutor", "tensorflow", false},
                                     {"bfc_allocator", "tensorflow", false},
                                     {"[op:", "tensorflow", false},
                                     {"jax", "jax", false},
                                     {"jaxlib", "jax", false},
                                     {"xla", "jax", true},
                                     {"pjrt", "jax", false},
                                     {"ggml", "ggml", false},
                                     {"llama.cpp", "ggml", false},
                                     {"llama_", "ggml", false},
                                     {"llm_load_tensors", "ggml", false},

                                     {"llama-server", "ggml", false},
                                     {"llama-cli", "ggml", false},
                                     {"llama-cpp", "ggml", false},
                                     {"llama-bench", "ggml", false},
                                     {"whisper.cpp", "ggml", false},
                                     {"whisper_", "ggml", false},
                                     {"alloc_tensor_range", "ggml", false},
                                     {"llama runner", "ggml", false},
                                     {"llama server", "ggml", false},
                                     {"ollama", "ollama", false},
                                     {"koboldcpp", "ggml", false},
                                     {"cuda0 buffer", "ggml", false},
                                     {"stable-diffusion.cpp", "ggml", false},
                                     {"onnxruntime", "onnxruntime", false},
                                     {"ort.webgpu", "onnxruntime", false},
                                     {"ort-wasm", "onnxruntime", false},
                                     {"onnxruntimeerror", "onnxruntime", false},
                                     {"onnxruntimeexception", "onnxruntime", false},
                                     {"bfcarena", "onnxruntime", false},
                                     {"tensorrt", "tensorrt", false},
                                     {"[trt]", "tensorrt", false},
                                     {"rtsafe", "tensorrt", false},
                                     {"safeclassruntime.cpp", "tensorrt", false},
                                     {"trt", "tensorrt", true},
                                     {"trtllm", "tensorrt", false},
                                     {"nvinfer1", "tensorrt", false},
                                     {"nvinfer", "tensorrt", false},
                                     {"trtexec", "tensorrt", false},
                                     {"trt-llm", "tensorrt", false},
                                     {"tensorrt_llm", "tensorrt", false},
                                     {"virtualmemorybuffer.cpp", "tensorrt", false},
                                     {"defaultallocator.cpp", "tensorrt", false},
                                     {"requested amount of gpu memory", "tensorrt", false},
                                     {"requested amount of memory", "tensorrt", false},
                                     {"paddle", "paddle", false},
                                     {"paddlepaddle", "paddle", false},
                                     {"mxnet", "mxnet", false},
                                     {"dmlc", "mxnet", false},
                                     {"cupy", "cupy", false},
                                     {"cudf", "rapids", false},
                                     {"cuml", "rapids", false},
                                     {"cugraph", "rapids", false},
                                     {"rapids", "rapids", false},
                                     {"raft", "rapids", true},
                                     {"xgboost", "xgboost", false},
                                     {"xgboosterror", "xgboost", false},
                                     {"gpu_hist", "xgboost", false},
                                     {"lightgbm", "lightgbm", false},
                                     {"lightgbmerror", "lightgbm", false},
                                     {"catboost", "catboost", false},
                                     {"ncudalib", "catboost", false},
                                     {"numba", "numba", false},
                                     {"cudapyapi", "numba", false},
                                     {"cudaapierror", "numba", false},
                                     {"mindspore", "mindspore", false},
                                     {"chainer", "chainer", false},
                                     {"use 'gpudevice", "matlab", false},
                                     {"theano", "theano", false},
                                     {"cnmem_status", "theano", false},
                                     {"gpuarray", "theano", false},
                                     {"apply node that caused the error", "theano", false},
                                     {"julia", "julia", true},
                                     {"loaderror", "julia", false},
                                     {"cuda.jl", "julia", false},
                                     {"cuarrays", "julia", false},
                                     {"amdgpu.jl", "julia", false},
                                     {"metal.jl", "julia", false},
                                     {"out of gpu memory trying to allocate", "julia", false},
                                     {"cudadrv", "julia", false},
                                     {"matlab", "matlab", false},
                                     {"parallel:gpu", "matlab", false},
                                     {"opencv", "opencv", false},
                                     {"iree", "iree", true},
                                     {"mlx", "mlx", false},
                                     {"[metal]", "metal", false},
                                     {"metal::malloc", "mlx", false},
                                     {"[malloc_or_wait]", "mlx", false},
                                     {"kiogpucommandbuffercallbackerroroutofmemory", "metal", false},
                                     {"ioaf code", "metal", false},
                                     {"ctranslate2", "ctranslate2", false},
                                     {"faster_whisper", "ctranslate2", false},
                                     {"tvm", "tvm", false},
                                     {"tvmerror", "tvm", false},
                                     {"mlc_llm", "tvm", false},
                                     {"mlc-llm", "tvm", false},
                                     {"cntk", "cntk", false},
                                     {"darknet", "darknet", false},
                                     {"dark_cuda", "darknet", false},
                                     {"cycles", "blender", true},
                                     {"blender", "blender", true},
                                     {"taichi", "taichi", false},
                                     {"candle", "candle", true},
                                     {"cudarc", "cudarc", false},
                                     {"drivererror", "cudarc", false},
                                     {"burn", "burn", true},
                                     {"cubecl", "burn", false},
                                     {"wgpu error", "wgpu", false},
                                     {"wgpu", "wgpu", false},
                                     {"tinygrad", "tinygrad", false},
                                     {"openvino", "openvino", false},
                                     {"intel_gpu", "openvino", false},
                                     {"intel_npu", "openvino", false},
                                     {"[cl ext]", "openvino", false},
                                     {"ncnn", "ncnn", false},
                                     {"mnn", "mnn", false},
                                     {"kaldi", "kaldi", false},
                                     {"cu-allocator.cc", "kaldi", false},
                                     {"spark", "spark", true},
                                     {"java", "java", true},
                                     {"jvm", "java", false},
                                     {"openjdk", "java", false},
                                     {"gromacs", "gromacs", false},
                                     {"lammps", "lammps", false},
                                     {"relion", "relion", false},
                                     {"pycuda", "pycuda", false},
                                     {"managedcuda", "managedcuda", false},
                                     {"pyopencl", "opencl", false},
                                     {"opencl", "opencl", false},
                                     {"clcreatebuffer", "opencl", false},
                                     {"cl_out_of_", "opencl", false},
                                     {"cl_mem_object_", "opencl", false},
                                     {"vulkan", "vulkan", false},
                                     {"vkallocatememory", "vulkan", false},
                                     {"directml", "", false},
                                     {"dxgi", "directx", false},
                                     {"d3d12", "directx", false},
                                     {"d3d11", "directx", false},
                                     {"direct3d", "directx", false},
                                     {"webgl", "webgl", false},
                                     {"gl_out_of_memory", "opengl", false},
                                     {"opengl", "opengl", false},
                                     {"tritonserver", "triton-server", false},
                                     {"coreml", "coreml", false},
                                     {"dl4j", "deeplearning4j", false},
                                     {"nd4j", "deeplearning4j", false},
                                     {"unreal", "unreal", true},
                                     {"unityengine", "unity", false},
                                     {"hashcat", "hashcat", false},
                                     {"ethminer", "ethminer", false},
                                     {"gmx", "gromacs", false},
                                     {"amber", "amber", true},
                                     {"namd", "namd", false},
                                     {"openmm", "openmm", false},
                                     {"kokkos", "kokkos", false},
                                     {"flashlight", "flashlight", false},
                                     {"arrayfire", "arrayfire", false},
                                     {"arrayfire exception", "arrayfire", false},
                                     {"open3d", "open3d", false},
                                     {"pcl", "pcl", true},
                                     {"turbomind", "turbomind", false},
                                     {"lmdeploy", "turbomind", false},
                                     {"[tm][", "turbomind", false},
                                     {"megengine", "megengine", false},
                                     {"mgb_", "megengine", false},
                                     {"oneflow", "oneflow", false},
                                     {"jittor", "jittor", false},
                                     {"caffe", "caffe", true},
                                     {"syncedmem", "caffe", false},
                                     {"marian", "marian", true},
                                     {"dynet", "dynet", false},
                                     {"system is out of gpu memory", "blender", false},
                                     {"system is out of gpu and shared host memory", "blender", false},
                                     {"rknn", "rknn", false},
                                     {"rkllm", "rknn", false},
                                     {"hailort", "hailort", false},
                                     {"hailo_out_of_", "hailort", false},
                                     {"tdrv", "neuron", false},
                                     {"nrt", "neuron", true},
                                     {"nrt_", "neuron", false},
                                     {"ncc_eoom", "neuron", false},
                                     {"poplar", "poplar", true},
                                     {"qnn", "qnn", true},
                                     {"snpe", "snpe", false},
                                     {"tflite", "tensorflow", false},
                                     {"mediapipe", "mediapipe", false},
                                     {"openacc", "openacc", false},
                                     {"pxgcudadevicememoryallocator fail", "physx", false},
                                     {"pxgcudahostmemoryallocator fail", "physx", false},
                                     {"omni.physx", "physx", false},
                                     {"cutlass", "", false}};
static const speaker libraries[] = {{"cublas", "cublas", false},
                                    {"cudnn", "cudnn", false},
                                    {"cufft", "cufft", false},
                                    {"cusparse", "cusparse", false},
                                    {"cusolver", "cusolver", false},
                                    {"curand", "curand", false},
                                    {"cutensor", "cutensor", false},
                                    {"nccl", "nccl", false},
                                    {"rccl", "rccl", false},
                                    {"nvshmem", "nvshmem", false},
                                    {"rocblas", "rocblas", false},
                                    {"hipblas", "hipblas", false},
                                    {"hipfft", "hipfft", false},
                                    {"rocfft", "rocfft", false},
                                    {"hipsparse", "hipsparse", false},
                                    {"rocsparse", "rocsparse", false},
                                    {"miopen", "miopen", false},
                                    {"hipblaslt", "hipblaslt", false},
                                    {"cublaslt", "cublas", false},
                                    {"faiss", "faiss", false},
                                    {"dali", "dali", true},
                                    {"nvjpeg", "nvjpeg", false},
                                    {"spconv", "spconv", false},
                                    {"tiny-cuda-nn", "tiny-cuda-nn", false},
                                    {"tcnn", "tiny-cuda-nn", false},
                                    {"minkowskiengine", "minkowski", false},
                                    {"bitsandbytes", "bitsandbytes", false},
                                    {"rmm", "rmm", false},
                                    {"thrust", "thrust", false},
                                    {"cub", "cub", true},
                                    {"warp", "warp", true},
                                    {"ucx", "ucx", false},
                                    {"nvenc", "nvenc", false},
                                    {"h264_nvenc", "nvenc", false},
                                    {"hevc_nvenc", "nvenc", false},
                                    {"av1_nvenc", "nvenc", false},
                                    {"nvdec", "nvdec", false},
                                    {"cuvid", "cuvid", false},
                                    {"decord", "decord", false},
                                    {"optix", "optix", false},
                                    {"dgl", "dgl", false},
                                    {"onednn", "onednn", false},
                                    {"dnnl", "onednn", false},
                                    {"transformer_engine", "transformer-engine", false},
                                    {"nvrtc", "nvrtc", false},
                                    {"rtmalloc", "cann", false},
                                    {"halmemalloc", "cann", false},
                                    {"torch_memory_saver", "torch_memory_saver", false},
                                    {"deep_ep", "deep_ep", false},
                                    {"deepep", "deep_ep", false},
                                    {"nixl", "nixl", true},
                                    {"mooncake", "mooncake", true},
                                    {"lmcache", "lmcache", false},
                                    {"k2", "k2", true}};

/* Whether the name at text[at, end) stands as code has it: beside "/", "_", ":", "." and the like. */
static bool is_in_code(const char *text, size_t from, size_t at, size_t end, size_t to) {
  static const char beside[] = "/\\_:[]()<>-=";
  if (end + 3 < to && text[end] == ' ' && text[end + 1] == '(' && /* a banner: "lammps (19 mar 2020)", "x (v5.1)" */
      (hri_is_digit(text[end + 2]) || (text[end + 2] == 'v' && hri_is_digit(text[end + 3]))))
    return true;
  if (end + 1 < to && text[end] == ' ' && text[end + 1] == ':') return true; /* a tag of a column's width */
  bool before = at > from && (strchr(beside, text[at - 1]) || (text[at - 1] == '.' && at > from + 1));
  bool behind = end < to && (strchr(beside, text[end]) || (text[end] == '.' && end + 1 < to &&
                                                           hri_is_name(text[end + 1]) && !hri_is_digit(text[end + 1])));
  return before || behind;
}

/* A speaker's name in text[from, to): as a word, or before "_", ".", "/" and the like. In the lines around a message
 * (`code`) all names count only where they stand as code has them. */
static const char *find_speaker(const char *text, size_t from, size_t to, const speaker *list, size_t count,
                                bool code) {
  for (size_t i = 0; i < count; i++) {
    size_t length = strlen(list[i].word);
    if (!list[i].name[0]) continue;
    for (size_t at = hri_oom_word(text, from, to, list[i].word); at < to;
         at = hri_oom_word(text, at + 1, to, list[i].word)) {
      size_t end = at + length;
      bool begins = at == from || !hri_is_name(text[at - 1]) || text[at - 1] == '_' || !hri_is_letter(list[i].word[0]);
      bool ends = end == to || !hri_is_letter(text[end]) || !hri_is_letter(list[i].word[length - 1]);
      bool own = strchr(list[i].word, '_') || strchr(list[i].word, ' ') || strchr(list[i].word, '.');
      if (at >= from + 5 && memcmp(text + at - 5, "envs/", 5) == 0) continue; /* an environment's name */
      if ((code || list[i].plain) && !own && !is_in_code(text, from, at, end, to)) continue;
      if (begins && ends) return list[i].name;
    }
  }
  return NULL;
}

/* Whether the name at text[at, end) tags its line: as code has it, but neither as an aside, "(x)", nor as the last word
 * before a colon of what somebody says, "an error of x: ...". */
static bool is_tag(const char *text, size_t from, size_t at, size_t end, size_t to) {
  size_t before = at;
  if (!is_in_code(text, from, at, end, to)) return false;
  if (at > from && text[at - 1] == '(' && end < to && text[end] == ')') return false;
  if (end + 1 < to && text[end] == ' ' && text[end + 1] == ':') end++;
  if (end == to || text[end] != ':' || (at > from && text[at - 1] != ' ')) return true;
  if (end + 1 < to && (text[end + 1] == ':' || hri_is_letter(text[end + 1]))) return true;
  while (before > from && text[before - 1] == ' ') before--;
  if (before > from && hri_is_letter(text[before - 1]) && (before == from + 1 || text[before - 2] == ' '))
    return true; /* a level of one letter: "e rknn: ..." */
  return before == from || strchr(":]>|", text[before - 1]);
}

bool hri_oom_is_own_line(const char *text, size_t from, size_t to, size_t first, size_t last, const char *name) {
  for (size_t i = 0; i < HRI_COUNT(frameworks); i++) {
    const char *word = frameworks[i].word;
    size_t length = strlen(word);
    if (strcmp(frameworks[i].name, name) != 0) continue;
    for (size_t at = hri_oom_word(text, from, to, word); at < to; at = hri_oom_word(text, at + 1, to, word))
      if (strpbrk(word, "_ [") || is_tag(text, from, at, at + length, to) || (at >= first && at + length <= last))
        return true;
  }
  return false;
}

/* Whether words of that speaker's that nobody else prints stand there: "wgpu error". */
static bool has_own_words(const char *text, size_t from, size_t to, const char *name) {
  for (size_t i = 0; i < HRI_COUNT(frameworks); i++)
    if (strcmp(frameworks[i].name, name) == 0 && strchr(frameworks[i].word, ' ') &&
        hri_oom_word(text, from, to, frameworks[i].word) < to)
      return true;
  return false;
}

/* Whether the word around text[at] is a place in a source, "ggml-cuda.cu:6821", "./darknet/src/dark_cuda.c". */
static bool is_source_place(const char *text, size_t at, size_t to) {
  static const char endings[] = ".c|.cc|.cpp|.cu|.cuh|.h|.hpp|.rs|.jl|.go|.mm";
  for (; at < to && !strchr(" ),", text[at]); at++) {
    const size_t end = text[at] == '.' ? hri_match_next(text, at, to, endings) : at;
    if (end > at && (end == to || !hri_is_name(text[end]))) return true;
  }
  return false;
}

/* Whether the word at text[at, end) is the folder of a file of Python in the last frame of a traceback: what raised it. */
static bool is_last_frame(const char *text, size_t at, size_t end, size_t to) {
  size_t close = hri_oom_word(text, end, to, ".py\", line "), length = end - at;
  bool own = hri_match_end(text, 0, at, "-packages/") ||
             (at > length + 1 && text[at - 1] == '/' && memcmp(text + at - length - 1, text + at, length) == 0);
  return own && end < to && text[end] == '/' && close < to && hri_oom_word(text, at, close, "file \"") == close &&
         hri_oom_word(text, close, to, "file \"") == to;
}

bool hri_oom_is_own_place(const char *text, size_t from, size_t to, const char *name) {
  for (size_t i = 0; i < HRI_COUNT(frameworks); i++) {
    const char *word = frameworks[i].word;
    if (strcmp(frameworks[i].name, name) != 0) continue;
    for (size_t at = hri_oom_word(text, from, to, word); at < to; at = hri_oom_word(text, at + 1, to, word))
      if (is_source_place(text, at, to) || is_last_frame(text, at, at + strlen(word), to)) return true;
  }
  return false;
}

const char *hri_oom_framework_in(const char *text, size_t from, size_t to) {
  return find_speaker(text, from, to, frameworks, HRI_COUNT(frameworks), false);
}

const char *hri_oom_framework_near(const char *text, size_t from, size_t to) {
  return find_speaker(text, from, to, frameworks, HRI_COUNT(frameworks), true);
}

static const char host_words[] =
    "host|system memory|ram|main memory|physical memory|virtual memory|swap|paging|page file|pagefile|host memory|"
    "cpu memory|address space|overcommit|memory cgroup|cgroup|job memory|step memory|out_of_host_memory|outofhostmemory|"
    "cpu buffer|cpu_repack buffer|cpu_mapped buffer|host allocation of|os memory|cpu can't allocate";
/* The kernel's ENOMEM as a number. */
static const char enomem_words[] = "errno 12|errno: 12|error 12|error code 12|error code: 12|cannot allocate memory";
/* The machine's memory as codes of errors name it, behind whoever's prefix. */
static const char host_names[] = "out_of_host_memory|outofhostmemory";
/* Lines that one speaker prints when the machine refuses: Slurm, YARN, Spark, Windows, R, the run times of Go and Rust,
 * V8, Python. */
static const char host_lines[] =
    "slurmstepd|yarn|vector of size|runtime: out of memory|runtime: cannot allocate memory|memory allocation of|"
    "call_and_retry_last|paging file is too small|exceeding memory limits|outofmemoryerror()|in memory context|"
    "failed on request of size|of memory (of type|virtualalloc of|system out of memory!|total sbrk() is|forrtl|"
    "out of process memory|process out of memory|modules/core/src/alloc.cpp|ggml_aligned_malloc|ggml_backend_cpu_buffer_type_alloc_buffer";
static const char soft_host[] =
    "pinned|page-locked|shm|/dev/shm|posix_memalign|malloc|realloc|calloc|mmap|shared memory segment|enomem|luajit|lua|"
    "heap|fork|bad_alloc|std::bad_alloc|numpy|jellyfish|pandas|memalign|openblas|duckdb|nomemoryerror|system.outofmemoryexception|"
    "insufficientmemoryexception|llvm error|exception out_of_memory|cpu|container|pod";
static const char device_words[] =
    "gpu|cuda|hip|device|vram|video memory|npu|xpu|hbm|mps|graphics memory|rocm|musa|cann|aclrtmalloc|tpu|hpu|"
    "cumemcreate|cumemalloc|cudamalloc|hipmalloc|gpus|gpu0|gpu1|cuda0|sycl|level zero|kv cache|cudamallocasync|"
    "cudaerror|cumemmap|cumemaddressreserve|rtmalloc|devicemem|tensor";

/* Of shared memory on the chip, not of what processes share. */
static const char chip_words[] = "per block|kernel|launch|smem|thread block|threadblock|sm|carveout|on the gpu";

static bool speaks_of_device(const char *text, size_t from, size_t to) {
  static const char parts[] = "cudamalloc|cumem|cuda_|hip_|hipmalloc|gpu|devicemem|outofdevicememory|curesult";
  return hri_match_any(text, from, to, device_words) || hri_match_part(text, from, to, parts);
}

const char *hri_oom_library_in(const char *text, size_t from, size_t to) {
  return find_speaker(text, from, to, libraries, HRI_COUNT(libraries), false);
}

/* Some names are those of interfaces, which programs of many kinds use. */
static bool is_interface(const char *name) {
  return hri_is_one_of(name, "vulkan|opencl|metal|directx|numba|managedcuda|opengl|webgl");
}

void hri_oom_set_framework(hri_oom_message *m, const char *name) {
  m->kind = is_interface(name) ? HRI_OOM_FOREIGN_LIKELY : HRI_OOM_FOREIGN;
  m->failure.source = name;
}

/* Who speaks of Metal, by the lines before: MLX, ggml; else an interface that many use. */
static const char *speaker_of_metal(const hri_oom_place *p) {
  size_t from = p->before_count > 200 ? p->before_count - 200 : 0;
  static const speaker mlx[] = {{"mlx", "mlx", false}};
  if (hri_match_whole(p->before, from, p->before_count, "mlx") < p->before_count ||
      find_speaker(p->before, from, p->before_count, mlx, 1, true) != NULL)
    return "mlx";
  return hri_oom_word(p->before, from, p->before_count, "ggml_") < p->before_count ? "ggml" : "metal";
}

/* PyTorch's own words when a command buffer of its MPS backend fails. */
static bool is_mps(const hri_oom_place *p) {
  size_t from = p->before_count > 300 ? p->before_count - 300 : 0;
  return hri_oom_word(p->before, from, p->before_count, "metal performance shaders operations") < p->before_count;
}

/* Whether a function of the machine's memory is named there, by whatever prefix: "zmalloc", "failed to reallocate". Devices
 * reallocate nothing, and their functions say whose they are. */
static bool names_host_function(const char *text, size_t from, size_t to) {
  static const char endings[] = "malloc|calloc|realloc|reallocate";
  static const char devices[] = "cu|hip|rt|cn|acl|xpu|mu|dev|hal|gpu|metal|npu";
  for (size_t at = hri_match_first(text, from, to, endings); at < to; at = hri_match_first(text, at + 1, to, endings)) {
    size_t start = at, end = hri_match_next(text, at, to, endings);
    while (start > from && (hri_is_name(text[start - 1]) || text[start - 1] == ':')) start--;
    if ((end == to || !hri_is_name(text[end])) && !hri_match_part(text, start, at, devices)) return true;
  }
  return false;
}

/* The lines right behind the message that say who speaks: a database's detail, the stack of a run time. */
static bool is_continued_by_host(const hri_oom_place *p) {
  static const char lines[] =
      "failed on request of size|in memory context|runtime stack:|of memory (of type|memorylabel:|goroutine ";
  size_t end = p->line_end + 160 < p->count ? p->line_end + 160 : p->count;
  return hri_match_part(p->text, p->line_end, end, lines);
}

/* Whether a line beside the message says that a function of the machine's memory failed: "memalign returned 0". */
static bool is_beside_host_call(const hri_oom_place *p) {
  static const char *const functions[] = {"malloc", "calloc", "realloc", "memalign", "posix_memalign", "aligned_alloc",
                                          "mmap",   "sbrk",   "brk",     "shmget",   "virtualalloc",   "fork"};
  static const char outcomes[] = "returned 0|returned null|returned -1|returned nullptr|returns null|fail|= null|errno";
  const size_t near = 120, far = p->before_count, from = far > near ? far - near : 0;
  const size_t to = p->line_end + near < p->count ? p->line_end + near : p->count;
  for (size_t i = 0; i < HRI_COUNT(functions); i++) {
    size_t at = hri_match_whole(p->before, from, far, functions[i]);
    if (at < far && hri_match_part(p->before, at, at + 48 < far ? at + 48 : far, outcomes)) return true;
    at = hri_match_whole(p->text, p->line_end, to, functions[i]);
    if (at < to && hri_match_part(p->text, at, at + 48 < to ? at + 48 : to, outcomes)) return true;
  }
  return false;
}

/* "sort: memory exhausted": as programs of the system say it, their name before a colon and nothing else. */
static bool is_exhausted(const hri_oom_place *p, size_t first, size_t last) {
  size_t rest = last;
  while (rest < p->line_end && !hri_is_name(p->text[rest])) rest++;
  return hri_match_at(p->text, first, last, "memory exhausted") && rest == p->line_end &&
         hri_match_end(p->text, p->line, first, ": ");
}

/* The name of a program before the phrase, as code qualifies it: "simtk.openmm.openmmexception: ...", "amrex::abort::".
 * What the libraries of languages are called, and PyTorch, is no program's name. */
static bool is_qualified(const char *text, size_t from, size_t to) {
  static const char common[] = "std|torch|c10|at|java|javax|system|numpy|builtins|thrust|cuda|python|core|kotlin|scala|"
                               "runtime|__main__|errors|sys|concurrent|multiprocessing|microsoft|boost|caffe2";
  size_t at = from, end;
  if (to > from + 2 && text[to - 1] == ':' && text[to - 2] == ':') /* its names end at the phrase */
    for (at = to; at > from && text[at - 1] != ' ';) at--;
  while (at < to && !hri_is_letter(text[at])) at++;
  for (end = at; end < to && hri_is_name(text[end]);) end++;
  if (end == at || end + 2 >= to || !(text[end] == '.' || (text[end] == ':' && text[end + 1] == ':'))) return false;
  if (hri_match_next(text, at, end, common) == end) return false;
  if (text[end] == ':') return hri_is_letter(text[end + 2]);
  for (; end < to && (hri_is_name(text[end]) || text[end] == '.'); end++) continue;
  return end < to && text[end] == ':' && hri_match_end(text, at, end, "error|exception");
}

/* "memory limit exceeded (16gi)": the unit is Kubernetes'. */
static bool is_pods_limit(const char *text, size_t from, size_t to) {
  size_t at = from;
  while (at < to && strchr(" (", text[at])) at++;
  size_t digits = at;
  while (at < to && hri_is_digit(text[at])) at++;
  return at > digits && at + 1 < to && strchr("kmgt", text[at]) && text[at + 1] == 'i';
}

/* A limit that the program itself sets: of a query, a server, a worker; not a batch system's, a container's. */
static bool is_own_limit(const hri_oom_place *p, size_t from, size_t to) {
  static const char outer[] =
      "job|step|container|cgroup|pod|slurmstepd|yarn|node|task|vmem|rss|mem|slurm|physical|hbm|vmem|tpu|shared|vram|gpu|"
      "device";
  size_t end = hri_sentence_end(p->text, to, p->line_end);
  if (is_pods_limit(p->text, to, end)) return false;
  if (hri_oom_word(p->text, to, end, " used)") < end && memchr(p->text + to, '/', end - to))
    return true; /* "(9.9 gib/10 gib used)" */
  return hri_match_part(
             p->text, from, end,
             "memory limit|memory budget|memory quota|memory usage limit|memory allocation limit|max. memory") &&
         hri_match_part(p->text, from, end, "exceed|reached|quota!") &&
         (hri_match_whole(p->text, from, end, "query") < end || !hri_match_any(p->text, from, to, outer));
}

void hri_oom_name_speaker(const hri_oom_place *p, size_t first, size_t last, hri_oom_message *m) {
  size_t from = first > p->line + 200 ? first - 200 : p->line, to = last + 200 < p->line_end ? last + 200 : p->line_end;
  size_t sentence = hri_sentence_start(p->text, from, first), end = hri_sentence_end(p->text, last, to);
  size_t wide = p->line_end + 100 < p->count ? p->line_end + 100 : p->count, far = p->before_count;
  const char *who = hri_oom_framework_in(p->text, from, to), *library = NULL;
  bool host_line = hri_match_any(p->text, sentence, end, host_lines);
  bool host = host_line || hri_match_any(p->text, sentence, end, host_words) ||
              hri_match_any(p->text, sentence, to, enomem_words) || hri_match_part(p->text, first, last, host_names);
  bool soft = hri_match_any(p->text, sentence, end, soft_host);
  bool device = speaks_of_device(p->text, sentence, end);
  bool function = !device && names_host_function(p->text, sentence, end + 80 < to ? end + 80 : to);
  library = hri_oom_library_in(p->text, from, to);
  if (!who && !library && hri_match_at(p->text, p->line, to, "what():")) { /* the exception's name stands before */
    size_t thrown = hri_oom_word(p->before, far > 240 ? far - 240 : 0, far, "instance of '");
    if (thrown < far) library = hri_oom_library_in(p->before, thrown, far);
  }
  m->anybodys = !who || !hri_oom_is_own_line(p->text, from, to, first, last, who);
  if (!who && !library && (who = hri_oom_framework_near(p->text, to, wide)) != NULL)
    m->anybodys =
        !hri_oom_is_own_line(p->text, from, hri_sentence_end(p->text, last, wide), first, last, who); /* wrapped */
  if (!who && !library && (who = hri_oom_framework_near(p->before, far > 240 ? far - 240 : 0, far)) != NULL)
    m->anybodys = !hri_oom_is_own_place(p->before, far > 240 ? far - 240 : 0, far, who) &&
                  !has_own_words(p->before, far > 240 ? far - 240 : 0, far, who);
  if (who && strcmp(who, "metal") == 0) who = speaker_of_metal(p);
  if (p->before_count > 0 && !who) {
    size_t back = p->before_count > 400 ? p->before_count - 400 : 0;
    back = hri_oom_word(p->before, back, p->before_count, "file \""); /* of a traceback, the paths */
    for (size_t at = hri_oom_word(p->before, back, p->before_count, "site-packages/"); at < p->before_count && !who;
         at = hri_oom_word(p->before, at + 1, p->before_count, "site-packages/"))
      who = hri_oom_framework_in(p->before, at + 14, at + 40 < p->before_count ? at + 40 : p->before_count);
  }
  if (is_continued_by_host(p) || is_pods_limit(p->text, last, end)) host = host_line = true;
  if (!who && !library && !host && !soft && device && is_qualified(p->text, p->line, first) &&
      !(hri_match_part(p->text, p->line, p->line_end, "cuda error|hip error") &&
        hri_oom_has_place(p->text, p->line, p->line_end))) { /* a program's own check of a call tells no more */
    who = "another program";
    m->anybodys = false;
  }
  if (!device && is_own_limit(p, sentence, last)) {
    m->kind = HRI_OOM_LIMIT;
    m->failure.source = who ? who : "server";
    m->anybodys = false;
  } else if (hri_oom_word(p->text, sentence, end, "shared memory") < end &&
             hri_match_any(p->text, sentence, end, chip_words)) {
    m->kind = HRI_OOM_CHIP;
    m->failure.source = "kernel of the device";
  } else if (host && !device && hri_match_whole(p->text, sentence, end, "pinned") == end) {
    m->kind = HRI_OOM_HOST;
    m->failure.source = "host";
    m->anybodys =
        (m->anybodys || (who && is_interface(who))) && !host_line; /* a framework's own line, of the host's memory */
  } else if (function || hri_match_part(p->text, sentence, end, "cuda_host")) { /* ggml's name for pinned memory */
    m->kind = HRI_OOM_HOST_LIKELY;
    m->failure.source = "host";
  } else if (who && strcmp(who, "metal") == 0 && is_mps(p)) {
    m->kind = HRI_OOM_BARE;
    m->failure.source = "pytorch-mps";
  } else if (who) {
    hri_oom_set_framework(m, who);
    if (hri_match_part(p->text, first, last, "out_of_resources")) m->kind = HRI_OOM_FOREIGN_LIKELY; /* memory is one */
  } else if (library) {
    m->kind = HRI_OOM_LIBRARY;
    m->failure.source = library;
  } else if ((soft && !device) || (host && soft) || (!device && is_beside_host_call(p)) ||
             (!device && is_exhausted(p, first, last))) {
    m->kind = HRI_OOM_HOST_LIKELY;
    m->failure.source = "host";
  } else {
    m->kind = HRI_OOM_REPORT;
    m->failure.source = device ? "device" : "unknown speaker";
  }
}

bool hri_oom_names_speaker(const char *text, size_t count) {
  bool one = true; /* a library's name alone; what else holds one is a log's prefix */
  for (size_t i = 0; i < count && !hri_match_at(text, i, count, " @ "); i++)
    one = one && (hri_is_letter(text[i]) || hri_is_digit(text[i]) || strchr("_-[]", text[i]));
  return hri_oom_framework_in(text, 0, count) || (one && hri_oom_library_in(text, 0, count));
}
