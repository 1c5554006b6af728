/* The names of those who speak: frameworks that are not PyTorch, libraries that take device memory past its allocator,
 * interfaces that programs of many kinds use. A name is looked for as a word, and the more often it is an ordinary word
 * too, or the further it stands from the message, the more it must stand as code has it.
 *
 * The neighbours may rely on this: of several names that a text holds the first of the table counts, whatever their
 * order in the text. Which memory it is, and what a name means for a message, is speaker.c's. */
#include "explain/match.h"
#include "explain/report.h"

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
                                     {"dlib", "dlib", false},
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
                                     {"cuda_device_allocator.cc", "jittor", false},
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

/* Which pairs of letters stand in a text, with some that do not: a name that begins with another pair is not in there. There are
 * hundreds of names, and every tag of a log's lines is asked about each. */
enum { PAIRS = 1024 };
typedef struct pair_set {
  uint64_t words[PAIRS / 64];
} pair_set;

static inline size_t pair_of(const char *text) {
  return ((unsigned char)text[0] * 37u + (unsigned char)text[1]) % PAIRS;
}

static pair_set pairs_of(const char *text, size_t from, size_t to) {
  pair_set set = {{0}};
  for (size_t at = from; at + 1 < to; at++) set.words[pair_of(text + at) / 64] |= 1ull << (pair_of(text + at) % 64);
  return set;
}

static inline bool has_pair(const pair_set *set, size_t pair) { return set->words[pair / 64] >> (pair % 64) & 1; }

/* A speaker's name in text[from, to): as a word, or before "_", ".", "/" and the like. In the lines around a message
 * (`code`) all names count only where they stand as code has them. */
static const char *find_speaker(const char *text, size_t from, size_t to, const speaker *list, size_t count,
                                bool code) {
  const pair_set pairs = pairs_of(text, from, to);
  for (size_t i = 0; i < count; i++) {
    size_t length;
    if (!list[i].name[0] || !has_pair(&pairs, pair_of(list[i].word))) continue; /* words have two letters or more */
    length = strlen(list[i].word);
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

bool hri_oom_has_own_words(const char *text, size_t from, size_t to, const char *name) {
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

/* Whether the word at text[at, end) is the folder of a file of Python in the last frame of a traceback: what raised
 * it. */
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

bool hri_oom_is_in_code(const char *text, size_t from, size_t to, const char *word) {
  const speaker one = {word, word, false};
  return find_speaker(text, from, to, &one, 1, true) != NULL;
}

const char *hri_oom_library_in(const char *text, size_t from, size_t to) {
  return find_speaker(text, from, to, libraries, HRI_COUNT(libraries), false);
}

bool hri_oom_names_speaker(const char *text, size_t count) {
  bool one = true; /* a library's name alone; what else holds one is a log's prefix */
  for (size_t i = 0; i < count && !hri_match_at(text, i, count, " @ "); i++)
    one = one && (hri_is_letter(text[i]) || hri_is_digit(text[i]) || strchr("_-[]", text[i]));
  return hri_oom_framework_in(text, 0, count) || (one && hri_oom_library_in(text, 0, count));
}
