/* The heads: words by which a message is found. Some say alone what it is; of others the words around them tell
 * (wording.c); a few belong to reports of any speaker (report.c). One table, looked up by the first three bytes, so that
 * a log costs one look per byte. */
#include "explain/match.h"
#include "explain/wording.h"

#include <pthread.h>

/* The source of a head that report.c judges. */
static const char GENERAL[] = "?";

static const hri_oom_head heads[] = {
    {"out of memory on tile", "poplar", HRI_OOM_CHIP},
    {"out of memory. type \"help memory\"", "matlab", HRI_OOM_HOST},
    {"out of memory. type help memory", "matlab", HRI_OOM_HOST},
    {"out of memory; check if mysqld or some other", "mysql", HRI_OOM_HOST},
    {"out of memory: allocator is trying to allocate", "sanitizer", HRI_OOM_HOST},
    {"out of memory or dimension too large for octave", "octave", HRI_OOM_HOST_LIKELY},
    {"out of memory quota!", "tidb", HRI_OOM_LIMIT},
    {"out of memory error: ", "", HRI_OOM_NOTHING}, /* DuckDB's class */
    {"out of memory in perl:", "perl", HRI_OOM_HOST_LIKELY},
    {"out of memory allocating the", "", HRI_OOM_NOTHING},
    {"out of memory", "", HRI_OOM_NOTHING},
    {"outof memory", "", HRI_OOM_NOTHING},                         /* as people type it */
    {"prefill out of memory. try to", "sglang", HRI_OOM_VLLM_CAP}, /* of its own pool of tokens */
    {"decode out of memory. try to", "sglang", HRI_OOM_VLLM_CAP},
    {"tried to allocate", "pytorch-cuda", HRI_OOM_CACHING},
    {"memory allocation failed with oom on device", "pytorch-cuda", HRI_OOM_CACHING}, /* the allocator's own log line */
    {"already allocated", "pytorch-cuda", HRI_OOM_CACHING}, /* of messages whose beginning was cut off */
    {"is allocated by pytorch", "pytorch-cuda", HRI_OOM_CACHING},
    {"reserved in total by pytorch", "pytorch-cuda", HRI_OOM_CACHING},
    {"is reserved by pytorch but", "pytorch-cuda", HRI_OOM_CACHING},
    {"has a total capac", "pytorch-cuda", HRI_OOM_CACHING},
    {"including non-pytorch memory", "pytorch-cuda", HRI_OOM_CACHING},
    {"would exceed allowed memory", "pytorch-cuda-async", HRI_OOM_ASYNC},
    {"cuda \xe5\x86\x85\xe5\xad\x98\xe4\xb8\x8d\xe8\xb6\xb3", "pytorch-cuda", HRI_OOM_CACHING}, /* in Chinese */
    {"cuda\xe5\x86\x85\xe5\xad\x98\xe4\xb8\x8d\xe8\xb6\xb3", "pytorch-cuda", HRI_OOM_CACHING},
    {"cuda \xe6\x98\xbe\xe5\xad\x98\xe4\xb8\x8d\xe8\xb6\xb3", "pytorch-cuda", HRI_OOM_CACHING},
    {"defaultcpuallocator", "pytorch-cpu", HRI_OOM_HOST},
    {"not enough memory: you tried to allocate", "pytorch-cpu", HRI_OOM_HOST},
    {"not enough gpu video memory", "pytorch-directml", HRI_OOM_BARE},
    {"unable to mmap", "", HRI_OOM_NOTHING},
    {"native memory allocation (", "java", HRI_OOM_HOST},
    {"killed by yarn for exceed", "yarn", HRI_OOM_HOST},
    {"[errno 12] cannot allocate memory", "python", HRI_OOM_HOST},
    {"cannot allocate memory", "", HRI_OOM_NOTHING}, /* what the kernel's ENOMEM says */
    {"cannot allocate vector of size", "r", HRI_OOM_HOST},
    {"ne peut allouer de la m\xc3\xa9moire", "enomem", HRI_OOM_NOTHING},      /* the kernel's ENOMEM in French */
    {"impossible d'allouer de la m\xc3\xa9moire", "enomem", HRI_OOM_NOTHING}, /* the kernel's ENOMEM in French */
    {"no se pudo asignar memoria", "enomem", HRI_OOM_NOTHING},                /* the kernel's ENOMEM in Spanish */
    {"impossibile allocare memoria", "enomem", HRI_OOM_NOTHING},              /* the kernel's ENOMEM in Italian */
    {"n\xc3\xa3o foi poss\xc3\xadvel alocar mem\xc3\xb3ria", "enomem",
     HRI_OOM_NOTHING}, /* the kernel's ENOMEM in Portuguese */
    {"n\xc3\xa3o \xc3\xa9 poss\xc3\xadvel alocar mem\xc3\xb3ria", "enomem",
     HRI_OOM_NOTHING},                                                  /* the kernel's ENOMEM in Portuguese */
    {"nicht gen\xc3\xbcgend hauptspeicher", "enomem", HRI_OOM_NOTHING}, /* the kernel's ENOMEM in German */
    {"\xd0\x9d\xd0\xb5\xd0\xb2\xd0\xbe\xd0\xb7\xd0\xbc\xd0\xbe\xd0\xb6\xd0\xbd\xd0\xbe \xd0\xb2\xd1\x8b\xd0\xb4\xd0\xb5\xd0\xbb\xd0\xb8\xd1\x82\xd1\x8c \xd0\xbf\xd0\xb0\xd0\xbc\xd1\x8f\xd1\x82\xd1\x8c",
     "enomem", HRI_OOM_NOTHING}, /* the kernel's ENOMEM in Russian */
    {"nie mo\xc5\xbcna przydzieli\xc4\x87 pami\xc4\x99"
     "ci",
     "enomem", HRI_OOM_NOTHING}, /* the kernel's ENOMEM in Polish */
    {"\xe6\x97\xa0\xe6\xb3\x95\xe5\x88\x86\xe9\x85\x8d\xe5\x86\x85\xe5\xad\x98", "enomem",
     HRI_OOM_NOTHING}, /* the kernel's ENOMEM in Chinese */
    {"\xe3\x83\xa1\xe3\x83\xa2\xe3\x83\xaa\xe3\x82\x92\xe7\xa2\xba\xe4\xbf\x9d\xe3\x81\xa7\xe3\x81\x8d\xe3\x81\xbe\xe3\x81\x9b\xe3\x82\x93",
     "enomem", HRI_OOM_NOTHING}, /* the kernel's ENOMEM in Japanese */
    {"\xeb\xa9\x94\xeb\xaa\xa8\xeb\xa6\xac\xeb\xa5\xbc \xed\x95\xa0\xeb\x8b\xb9\xed\x95\xa0 \xec\x88\x98 \xec\x97\x86\xec\x8a\xb5\xeb\x8b\x88\xeb\x8b\xa4",
     "enomem", HRI_OOM_NOTHING}, /* the kernel's ENOMEM in Korean */
    {"kann vektor der gr\xc3\xb6\xc3\x9f"
     "e",
     "r", HRI_OOM_HOST},                                      /* in German */
    {"allouer un vecteur de taille", "r", HRI_OOM_HOST},      /* in French */
    {"ubicar un vector de tama", "r", HRI_OOM_HOST},          /* in Spanish */
    {"alocar vetor de tamanho", "r", HRI_OOM_HOST},           /* in Portuguese */
    {"allocare il vettore di dimensione", "r", HRI_OOM_HOST}, /* in Italian */
    {"\xd1\x80\xd0\xb0\xd0\xb7\xd0\xbc\xd0\xb5\xd1\x81\xd1\x82\xd0\xb8\xd1\x82\xd1\x8c \xd0\xb2\xd0\xb5\xd0\xba\xd1\x82\xd0\xbe\xd1\x80 \xd1\x80\xd0\xb0\xd0\xb7\xd0\xbc\xd0\xb5\xd1\x80\xd0\xbe\xd0\xbc",
     "r", HRI_OOM_HOST}, /* in Russian */
    {"\xe6\x97\xa0\xe6\xb3\x95\xe5\x88\x86\xe9\x85\x8d\xe5\xa4\xa7\xe5\xb0\x8f\xe4\xb8\xba", "r",
     HRI_OOM_HOST}, /* in Chinese */
    {"enforce fail at", "", HRI_OOM_NOTHING},
    {"bad_alloc", "c++", HRI_OOM_HOST_LIKELY},
    {"arraymemoryerror", "numpy", HRI_OOM_HOST},
    {"memoryerror", "", HRI_OOM_NOTHING},
    {"unable to allocate", "", HRI_OOM_NOTHING},
    {"cublas_status_alloc_failed", "cublas", HRI_OOM_LIBRARY},
    {"cublas_status_not_initialized", "cublas", HRI_OOM_LIBRARY}, /* mostly no room for its handle */
    {"cudnn_status_alloc_failed", "cudnn", HRI_OOM_LIBRARY},
    {"valid cudnn algorithm", "cudnn", HRI_OOM_LIBRARY},
    {"unable to find an engine to execute", "cudnn", HRI_OOM_LIBRARY},
    {"failed to cuda calloc", "nccl", HRI_OOM_LIBRARY},
    {"killed by signal: killed", "kill", HRI_OOM_HOST_LIKELY},
    {"killed by signal:killed", "kill", HRI_OOM_HOST_LIKELY},
    {"ran out of memory when regular vae", "pytorch-cuda", HRI_OOM_BARE}, /* ComfyUI's, which goes on with tiles */
    {"killed by signal: bus error", "shared-memory", HRI_OOM_HOST_LIKELY},
    {"insufficient shared memory", "shared-memory", HRI_OOM_HOST_LIKELY},
    {"unable to write to file </torch_", "", HRI_OOM_NOTHING}, /* storages that processes share */
    {"/dev/shm/", "", HRI_OOM_NOTHING},
    {"no space left on device", "", HRI_OOM_NOTHING},
    {"out of shared memory", "shared-memory", HRI_OOM_HOST_LIKELY},
    {"sigkill", "kill", HRI_OOM_HOST_LIKELY},
    {"exitcode", "", HRI_OOM_NOTHING},
    {"exit code", "", HRI_OOM_NOTHING},
    {"exit_code", "", HRI_OOM_NOTHING},
    {"exit_status", "", HRI_OOM_NOTHING},
    {"exitstatus", "", HRI_OOM_NOTHING},
    {"; exit: 137;", "kill", HRI_OOM_HOST_LIKELY}, /* Nextflow's record of a task */
    {"execution to fail was: 137", "kill", HRI_OOM_HOST_LIKELY},
    {"oomd attempting to kill ", "systemd-oomd", HRI_OOM_HOST},
    {"exitfailure (", "", HRI_OOM_NOTHING}, /* Haskell's */
    {"calledprocesserror(-9,", "kill", HRI_OOM_HOST_LIKELY},
    {"negsignal.sigkill", "kill", HRI_OOM_HOST_LIKELY}, /* Python's name of a return code */
    {"memory object allocation failure", "opencl", HRI_OOM_FOREIGN_LIKELY},
    {"dxvkmemoryallocator: memory allocation failed", "dxvk", HRI_OOM_FOREIGN},
    {"allocator is out of memory trying to allocate 0x", "sanitizer", HRI_OOM_HOST},
    {"failed to allocate buffer for kv cache", "ggml", HRI_OOM_FOREIGN_LIKELY}, /* shown by programs around it */
    {"leave no gpu memory for the kv cache under --mem-fraction", "sglang", HRI_OOM_VLLM_CAP},
    {"exited with code", "", HRI_OOM_NOTHING},
    {"exit status", "", HRI_OOM_NOTHING},
    {"exited with status", "", HRI_OOM_NOTHING},
    {"returncode", "", HRI_OOM_NOTHING},
    {"return code", "", HRI_OOM_NOTHING},
    {"non-zero code", "", HRI_OOM_NOTHING},
    {"[winerror 1455]", "windows", HRI_OOM_HOST},
    {"os error 1455", "windows", HRI_OOM_HOST},
    {"paging file is too small for this operation", "windows", HRI_OOM_HOST},
    {"hresult:0x80070008", "windows",
     HRI_OOM_HOST_LIKELY}, /* not enough memory resources; its words in other languages */
    {"hresult: 0x80070008", "windows", HRI_OOM_HOST_LIKELY},
    {"\xe5\x86\x85\xe5\xad\x98\xe8\xb5\x84\xe6\xba\x90\xe4\xb8\x8d\xe8\xb6\xb3\xef\xbc\x8c\xe6\x97\xa0\xe6\xb3\x95\xe5\xa4\x84\xe7\x90\x86\xe6\xad\xa4\xe5\x91\xbd\xe4\xbb\xa4",
     "windows", HRI_OOM_HOST_LIKELY},                                                              /* in Chinese */
    {"nicht gen\xc3\xbcgend speicherressourcen verf\xc3\xbcgbar", "windows", HRI_OOM_HOST_LIKELY}, /* in German */
    {"ressources m\xc3\xa9moire insuffisantes pour traiter", "windows", HRI_OOM_HOST_LIKELY},      /* in French */
    {"no hay suficientes recursos de memoria disponibles", "windows", HRI_OOM_HOST_LIKELY},        /* in Spanish */
    {"\xd0\xbd\xd0\xb5\xd0\xb4\xd0\xbe\xd1\x81\xd1\x82\xd0\xb0\xd1\x82\xd0\xbe\xd1\x87\xd0\xbd\xd0\xbe \xd1\x80\xd0\xb5\xd1\x81\xd1\x83\xd1\x80\xd1\x81\xd0\xbe\xd0\xb2 \xd0\xbf\xd0\xb0\xd0\xbc\xd1\x8f\xd1\x82\xd0\xb8",
     "windows", HRI_OOM_HOST_LIKELY}, /* in Russian */
    {"\xd0\x9d\xd0\xb5\xd0\xb4\xd0\xbe\xd1\x81\xd1\x82\xd0\xb0\xd1\x82\xd0\xbe\xd1\x87\xd0\xbd\xd0\xbe \xd1\x80\xd0\xb5\xd1\x81\xd1\x83\xd1\x80\xd1\x81\xd0\xbe\xd0\xb2 \xd0\xbf\xd0\xb0\xd0\xbc\xd1\x8f\xd1\x82\xd0\xb8",
     "windows", HRI_OOM_HOST_LIKELY}, /* the same at a beginning */
    {"\xe9\xa1\xb5\xe9\x9d\xa2\xe6\x96\x87\xe4\xbb\xb6\xe5\xa4\xaa\xe5\xb0\x8f\xef\xbc\x8c\xe6\x97\xa0\xe6\xb3\x95\xe5\xae\x8c\xe6\x88\x90\xe6\x93\x8d\xe4\xbd\x9c",
     "windows", HRI_OOM_HOST},                                                             /* in Chinese */
    {"auslagerungsdatei ist zu klein", "windows", HRI_OOM_HOST},                           /* in German */
    {"fichier de pagination est insuffisant", "windows", HRI_OOM_HOST},                    /* in French */
    {"archivo de paginaci\xc3\xb3n es demasiado peque\xc3\xb1o", "windows", HRI_OOM_HOST}, /* in Spanish */
    {"\xe3\x83\x9a\xe3\x83\xbc\xe3\x82\xb8\xe3\x83\xb3\xe3\x82\xb0 \xe3\x83\x95\xe3\x82\xa1\xe3\x82\xa4\xe3\x83\xab\xe3\x81\x8c\xe5\xb0\x8f\xe3\x81\x95\xe3\x81\x99\xe3\x81\x8e\xe3\x82\x8b\xe3\x81\x9f\xe3\x82\x81",
     "windows", HRI_OOM_HOST}, /* in Japanese */
    {"\xd1\x84\xd0\xb0\xd0\xb9\xd0\xbb \xd0\xbf\xd0\xbe\xd0\xb4\xd0\xba\xd0\xb0\xd1\x87\xd0\xba\xd0\xb8 \xd1\x81\xd0\xbb\xd0\xb8\xd1\x88\xd0\xba\xd0\xbe\xd0\xbc \xd0\xbc\xd0\xb0\xd0\xbb",
     "windows", HRI_OOM_HOST}, /* in Russian */
    {"\xd0\xa4\xd0\xb0\xd0\xb9\xd0\xbb \xd0\xbf\xd0\xbe\xd0\xb4\xd0\xba\xd0\xb0\xd1\x87\xd0\xba\xd0\xb8 \xd1\x81\xd0\xbb\xd0\xb8\xd1\x88\xd0\xba\xd0\xbe\xd0\xbc \xd0\xbc\xd0\xb0\xd0\xbb",
     "windows", HRI_OOM_HOST}, /* the same at a beginning */
    {"rayoutofmemoryerror: more than", "ray", HRI_OOM_HOST},
    {"which exceeds the memory usage threshold of", "ray", HRI_OOM_HOST},
    {"memory_allocation_failure(el", "cann", HRI_OOM_LIBRARY}, /* Ascend's, with a number */
    {"oomkilled", "", HRI_OOM_NOTHING},
    {"container oom ", "", HRI_OOM_NOTHING},
    {"/tasks/oom {\"container_id\"", "containerd", HRI_OOM_HOST},
    {"topic=/tasks/oom", "containerd", HRI_OOM_HOST},
    {"srun: error:", "", HRI_OOM_NOTHING},
    {"killed process ", "", HRI_OOM_NOTHING},
    {"requires more system memory (", "ollama", HRI_OOM_HOST},
    {"bad allocation", "", HRI_OOM_NOTHING}, /* what bad_alloc says on Windows */
    {"oom killed", "", HRI_OOM_NOTHING},
    {"oom-killed", "", HRI_OOM_NOTHING},
    {"oom-kill", "", HRI_OOM_NOTHING},
    {"oom_kill_process+0x", "kernel", HRI_OOM_HOST},     /* in its call trace */
    {"throwing outofmemoryerror", "java", HRI_OOM_HEAP}, /* Android's */
    {"oom_kill", "", HRI_OOM_NOTHING},
    {"oom killer terminated ", "", HRI_OOM_NOTHING}, /* as a builder of images counts it */
    {"rmm_error_out_of_memory", "rmm", HRI_OOM_LIBRARY},
    {"of this unit has been killed by the oom killer", "systemd", HRI_OOM_HOST},
    {"session crashed after using all available ram", "notebook", HRI_OOM_HOST},            /* Colab's */
    {"notebook tried to allocate more memory than is available", "notebook", HRI_OOM_HOST}, /* Kaggle's */
    {"memory budget. restarting", "dask", HRI_OOM_HOST},
    {"node running low on memory", "ray", HRI_OOM_HOST},
    {"killed due to memory pressure (oom)", "ray", HRI_OOM_HOST},
    {"ray.exceptions.outofmemoryerror", "ray", HRI_OOM_HOST},
    {"java.lang.outofmemoryerror", "java", HRI_OOM_HEAP},
    {"java heap space", "java", HRI_OOM_HEAP},
    {"gc overhead limit exceeded", "java", HRI_OOM_HEAP},
    {"javascript heap out of memory", "node.js", HRI_OOM_HEAP},
    {"fatal javascript out of memory", "node.js", HRI_OOM_HEAP}, /* of V8 in other programs */
    {"near heap limit", "node.js", HRI_OOM_HEAP},
    {"allowed memory size of", "php", HRI_OOM_HEAP},
    {"heap exhausted", "", HRI_OOM_NOTHING}, /* SBCL's, GHC's */
    {"exhausted heap space, trying to allocate", "dart", HRI_OOM_HEAP},
    {"cannot enlarge memory arrays", "emscripten", HRI_OOM_HEAP},
    {"maximum pool size exceeded", "rmm", HRI_OOM_LIBRARY},
    {"enforce allocating <= available failed", "paddle", HRI_OOM_FOREIGN},
    {"cupy.cuda.memory.outofmemoryerror", "cupy", HRI_OOM_FOREIGN},
    {"out of resource: shared memory", "triton", HRI_OOM_CHIP},
    {"outofresources: shared memory", "triton", HRI_OOM_CHIP},
    {"uses too much shared data", "ptxas", HRI_OOM_CHIP},
    {"local memory (", "", HRI_OOM_NOTHING}, /* LLVM's: "local memory (98304) exceeds limit (65536) in function" */
    {"threadgroup memory size (", "", HRI_OOM_NOTHING},
    {"too many resources requested for launch", "cuda", HRI_OOM_CHIP},
    {"resource_exhausted", "", HRI_OOM_NOTHING},
    {"resourceexhausted", "", HRI_OOM_NOTHING},
    {"resource exhausted", "", HRI_OOM_NOTHING},
    {"memory space hbm", "jax", HRI_OOM_FOREIGN},
    {"exceeded hbm capacity by", "jax", HRI_OOM_FOREIGN},
    {"oom when allocating", "tensorflow", HRI_OOM_FOREIGN},
    {"no available memory for the cache blocks", "vllm", HRI_OOM_VLLM_CAP},
    {"not enough memory. please try to increase --mem-fraction", "sglang", HRI_OOM_VLLM_CAP},
    {"gpu blocks: 0,", "", HRI_OOM_NOTHING},
    {"less than desired gpu memory utilization", "vllm", HRI_OOM_VLLM_BUSY},
    {"kv cache is needed, which is larger", "vllm", HRI_OOM_VLLM_CAP},
    {"number of tokens that can be stored in kv cache", "vllm", HRI_OOM_VLLM_CAP},
    {"cuda_error_out_of_memory", "cuda-driver", HRI_OOM_DRIVER},
    {"hip_error_outofmemory", "hip-driver", HRI_OOM_DRIVER},
    {"ur_result_error_out_of_device_memory", "pytorch-xpu", HRI_OOM_BARE},
    {"error_out_of_device_memory", "", HRI_OOM_NOTHING},
    {"erroroutofdevicememory", "", HRI_OOM_NOTHING},
    {"(outofdevicememory)", "vulkan", HRI_OOM_FOREIGN_LIKELY}, /* as Rust prints its code */
    {"cudaerrormemoryallocation", "pytorch-cuda", HRI_OOM_BARE},
    {"hiperroroutofmemory", "pytorch-hip", HRI_OOM_BARE},
    {"curesult error result=2 ", "cuda-extension", HRI_OOM_BARE},
    {"failed to cudamalloc", "cuda-extension", HRI_OOM_LIBRARY},
    {"memory not available to allocate buffer", "miopen", HRI_OOM_LIBRARY},
    {"failed to allocate memory for requested buffer", "onnxruntime", HRI_OOM_FOREIGN},
    {"cumemhostalloc failed: out of memory", "pycuda", HRI_OOM_PINNED},
    {"cudahostalloc", "", HRI_OOM_NOTHING},
    {"cudamallochost", "", HRI_OOM_NOTHING},
    {"hiphostmalloc", "", HRI_OOM_NOTHING},
    {"hsa_status_error_out_of_resources", "rocm-runtime", HRI_OOM_DRIVER},
    {"outofmemoryerror: allocation on device", "", HRI_OOM_NOTHING},
    {"invalid buffer size:", "pytorch-mps", HRI_OOM_BARE},
    {"state=out_of_memory", "slurm", HRI_OOM_HOST},
    {"state: out_of_memory", "slurm", HRI_OOM_HOST},
    {"os::commit_memory(", "", HRI_OOM_NOTHING},
    {"insufficient memory for the java runtime", "java", HRI_OOM_HOST},
    {"vector memory exhausted", "r", HRI_OOM_HOST},
    {"cons memory exhausted", "r", HRI_OOM_HOST},
    {"valgrind's memory management: out of memory", "valgrind", HRI_OOM_HOST},
    {"exceeded mem limit: ", "ios", HRI_OOM_HOST},
    {"not enough virtual memory or paging file quota", "windows", HRI_OOM_HOST},
    {"unable to execute command: killed", "build", HRI_OOM_HOST_LIKELY}, /* Clang's */
    {"out_of_me+", "slurm", HRI_OOM_HOST},                               /* sacct's column */
    {"term_memlimit", "lsf", HRI_OOM_HOST},
    {"pbs: job killed: mem", "pbs", HRI_OOM_HOST},
    {"pbs: job killed: vmem", "pbs", HRI_OOM_HOST},
    {"exceeded a memory resource limit", "pbs", HRI_OOM_HOST},
    {"exceeded mem usage hard limit", "torque", HRI_OOM_HOST}, /* "... (1200 > 1000)"; the soft limit warns */
    {"exceeded memory limit (", "", HRI_OOM_NOTHING},
    {"memory quota exceeded", "", HRI_OOM_NOTHING}, /* Heroku's */
    {"memory quota vastly exceeded", "heroku", HRI_OOM_HOST},
    {"memory status that requires corrective actions", "nohang", HRI_OOM_HOST},
    {", oom_score_adj ", "", HRI_OOM_NOTHING}, /* lmkd's, behind whom it kills */
    {", adj ", "", HRI_OOM_NOTHING},
    {"terminated due to memory issue", "ios", HRI_OOM_HOST},
    {"killed by the operating system because it is using too much memory", "ios", HRI_OOM_HOST}, /* Xcode's */
    {"resource_type_memory (limit=", "ios", HRI_OOM_HOST},
    {"resource_type_memory: high watermark", "ios", HRI_OOM_HOST},
    {"namespace jetsam, code", "ios", HRI_OOM_HOST},
    {"exceeding jetsam memory limits", "ios", HRI_OOM_HOST},
    {"\"per-process-limit\"", "", HRI_OOM_NOTHING}, /* reasons of a jetsam report */
    {"\"vm-pageshortage\"", "", HRI_OOM_NOTHING},
    {"\"highwater\"", "", HRI_OOM_NOTHING},
    {"op. sys. refuses to provide memory", "stata", HRI_OOM_HOST},
    {"exited (137)", "kill", HRI_OOM_HOST_LIKELY}, /* Docker's list of containers */
    {"exit(137)", "kill", HRI_OOM_HOST_LIKELY},
    {"exit string: killed (signal 9", "mpi", HRI_OOM_HOST_LIKELY},
    {"killed (program ", "build", HRI_OOM_HOST_LIKELY},
    {"beyond virtual memory limits", "yarn", HRI_OOM_HOST},
    {"killed signal terminated program", "build", HRI_OOM_HOST_LIKELY}, /* a compiler's */
    {"due to memory pressure for", "systemd-oomd", HRI_OOM_HOST},
    {"signal 9", "", HRI_OOM_NOTHING},
    {"code=killed, status=9/kill", "kill", HRI_OOM_HOST_LIKELY}, /* systemd's */
    {"signal: killed", "kill", HRI_OOM_HOST_LIKELY},
    {"is smaller than requested bytes of", "onnxruntime", HRI_OOM_FOREIGN},
    {"exceeded max size of memory object allocation", "openvino", HRI_OOM_FOREIGN},
    {"launch_out_of_resources", "cuda", HRI_OOM_CHIP},
    {"launchoutofresources", "cuda", HRI_OOM_CHIP},
    {"out of resource: ", "triton", HRI_OOM_CHIP},
    {"out of video memory trying to allocate a render", "unreal", HRI_OOM_FOREIGN},
    {"memory isn't enough and alloc failed", "mindspore", HRI_OOM_FOREIGN},
    {"beyond the 'physical' memory limit", "yarn", HRI_OOM_HOST},
    {"beyond the 'virtual' memory limit", "yarn", HRI_OOM_HOST},
    {"beyond physical memory limits", "yarn", HRI_OOM_HOST},
    {"vector memory limit of", "r", HRI_OOM_HEAP},
    {"array exceeds maximum array size preference", "matlab", HRI_OOM_LIMIT},
    {"page allocation failure", "", HRI_OOM_NOTHING}, /* the kernel's */
    {"oom_reaper: reaped process", "kernel", HRI_OOM_HOST},
    {"killed as a result of limit of", "kernel", HRI_OOM_HOST},
    {"sending sigterm to process ", "", HRI_OOM_NOTHING}, /* earlyoom's */
    {"sending sigkill to process ", "", HRI_OOM_NOTHING},
    {"due to memory used (", "systemd-oomd", HRI_OOM_HOST},
    {"memorystatus: killing", "", HRI_OOM_NOTHING},                        /* macOS and iOS */
    {"killing largest compressed process with pid ", "", HRI_OOM_NOTHING}, /* macOS, where swap is full */
    {"has run out of application memory", "macos", HRI_OOM_HOST},
    {"computer is low on memory", "windows", HRI_OOM_HOST_LIKELY},
    {"not enough memory resources are available", "", HRI_OOM_NOTHING}, /* Windows */
    {"exceeds job hard limit", "", HRI_OOM_NOTHING},                    /* Grid Engine's */
    {"gone over memory limit of", "htcondor", HRI_OOM_HOST},
    {"gone over cgroup memory limit of", "htcondor", HRI_OOM_HOST},
    {"container killed due to memory usage", "aws-batch", HRI_OOM_HOST},
    {"low on resource: memory", "kubernetes", HRI_OOM_HOST},
    {"system oom encountered, victim process", "kubernetes", HRI_OOM_HOST},
    {"node had condition: [memorypressure]", "kubernetes", HRI_OOM_HOST},
    {"oom event received", "podman", HRI_OOM_HOST},
    {"taskoom event", "containerd", HRI_OOM_HOST},
    {"appears to have been oom killed!", "fly", HRI_OOM_HOST},
    {"runtime.outofmemory", "aws-lambda", HRI_OOM_HOST},
    {"memory limit exceeded. function invocation was interrupted", "cloud-functions", HRI_OOM_HOST},
    {"container '", "", HRI_OOM_NOTHING},
    {"killed due to excessive memory consumption", "readthedocs", HRI_OOM_HOST},
    {"ran out-of-memory and exited with", "vertex", HRI_OOM_HOST},
    {"received \"killed\" signal", "kill", HRI_OOM_HOST_LIKELY}, /* CircleCI's */
    {"non-zero status", "", HRI_OOM_NOTHING},
    {"errno 137", "kill", HRI_OOM_HOST_LIKELY}, /* npm's */
    {"condamemoryerror", "conda", HRI_OOM_HOST_LIKELY},
    {"general::nomem: the current computation was aborted", "mathematica", HRI_OOM_HOST},
    {"no more memory available. mathematica kernel", "mathematica", HRI_OOM_HOST},
    {"failed to allocate memory (nomemoryerror)", "ruby", HRI_OOM_HOST_LIKELY},
    {"<jemalloc>: error in ", "jemalloc", HRI_OOM_HOST_LIKELY},
    {"at least one \"out of memory\" (\"oom\") event", "vercel", HRI_OOM_HOST},
    {"addresssanitizer failed to allocate 0x", "sanitizer", HRI_OOM_HOST},
    {"libfuzzer: out-of-memory (", "libfuzzer", HRI_OOM_LIMIT},
    {"space in the context's memory pool (needed", "ggml", HRI_OOM_LIMIT},
    {"space in the scratch memory pool (needed", "ggml", HRI_OOM_LIMIT},
    {"space in the buffer (needed", "ggml-alloc", HRI_OOM_LIMIT},
    {"for suffix_array failed", "bwa-mem2", HRI_OOM_HOST},
    {"failed attempt to allocate", "", HRI_OOM_NOTHING},
    {"too many k-mers to fit into available memory", "", HRI_OOM_NOTHING},
    {"not enough memory, please set -m option", "cd-hit", HRI_OOM_LIMIT},
    {"space in the buffer to allocate", "ggml-alloc", HRI_OOM_LIMIT},
    {"executed in the allotted memory", "bigquery", HRI_OOM_LIMIT},
    {"insufficient system memory in resource pool", "sql-server", HRI_OOM_LIMIT},
    {"would use more than the limit", "neo4j", HRI_OOM_LIMIT},
    {"memory circuit breaker triggered as", "solr", HRI_OOM_LIMIT},
    {"failed to allocate additional", "datafusion", HRI_OOM_LIMIT},
    {"memoryallocationexception: could not allocate", "flink", HRI_OOM_LIMIT},
    {"arena size is too small for", "tflite", HRI_OOM_LIMIT},
    {"failed to allocate tail memory. requested", "tflite", HRI_OOM_LIMIT},
    {"failed to allocate temp memory. requested", "tflite", HRI_OOM_LIMIT},
    {"out of cuda pre-allocated memory", "taichi", HRI_OOM_LIMIT},
    {"invalid memory alloc request size", "postgresql", HRI_OOM_LIMIT},
    {"exceeds maximum supported size of 0x", "sanitizer", HRI_OOM_LIMIT},
    {"jvm heap space is exhausted", "java", HRI_OOM_HEAP},
    {"max heap size was exceeded", "hermes", HRI_OOM_HEAP},
    {"webassembly.memory.grow(): maximum memory size", "wasm", HRI_OOM_HEAP},
    {"cuda runtime api error cudaerrormemoryallocation", "dali", HRI_OOM_LIBRARY},
    {"cuda error: 2[", "cuda-extension", HRI_OOM_BARE}, /* nvdiffrast's */
    {"insufficient memory on accelerator (", "lammps", HRI_OOM_FOREIGN},
    {"executor creation failed due to insufficient", "tensorrt", HRI_OOM_FOREIGN},
    {"is greater than the maximum buffer size", "wgpu", HRI_OOM_FOREIGN},
    {"expected allocating <= available, but received", "paddle", HRI_OOM_FOREIGN},
    {"unexpected error occurred during cuda execution", "", HRI_OOM_NOTHING}, /* MATLAB's */
    {"cudamalloc gpubuffer::allocate failed", "amber", HRI_OOM_FOREIGN},
    {"cudacustomallocator out of memory", "relion", HRI_OOM_FOREIGN},
    {"failed to set maximum shared memory size (", "kernel of the device", HRI_OOM_CHIP},
    {"not enough allocatable device memory for this", "hashcat", HRI_OOM_FOREIGN},
    {"kokkos failed to allocate memory for label", "", HRI_OOM_NOTHING},
    {"too large swap space. ", "vllm", HRI_OOM_HOST},
    {"cpu can't allocate memory. tried to", "oneflow", HRI_OOM_HOST},
    {"not enough memory to handle ", "", HRI_OOM_NOTHING},
    {"storage allocation failure, attempted to", "tvm", HRI_OOM_LIMIT},
    {"out-of-memory error in routine", "gaussian", HRI_OOM_LIMIT},
    {"memory limit reached. please jump to an outer", "maxima", HRI_OOM_LIMIT},
    {"max. memory exceeded", "z3", HRI_OOM_LIMIT},
    {"stopped due to insufficient system resources", "lm-studio", HRI_OOM_LIMIT},
    {"nuke_limit reached, could not get storage", "varnish", HRI_OOM_LIMIT},
    {"allocation on device this error means you ran", "pytorch-cuda", HRI_OOM_BARE}, /* ComfyUI's */
    {"not enough memory, use lower resolution", "web-ui", HRI_OOM_BARE},
    {"spawn enomem", "node.js", HRI_OOM_HOST},
    {"err_worker_out_of_memory", "node.js", HRI_OOM_HEAP},
    {"js heap out of memory", "node.js", HRI_OOM_HEAP},
    {"could not reserve enough space for", "", HRI_OOM_NOTHING},
    {"error allocating ", "", HRI_OOM_NOTHING},
    {"exception during processing !!! allocation on device", "pytorch-cuda", HRI_OOM_BARE}, /* ComfyUI's */
    {"can not allocate memory block with size larger than", "pytorch-xpu", HRI_OOM_LIMIT},
    {"failed to allocate memory for image.", "itk", HRI_OOM_HOST_LIKELY},
    {"is too small for your genome", "star", HRI_OOM_LIMIT},
    {"not enough memory for bam sorting", "star", HRI_OOM_LIMIT},
    {"allocation failure", "", HRI_OOM_NOTHING},
    {"could not satisfy request for", "", HRI_OOM_NOTHING},
    {"failed with -9", "", HRI_OOM_NOTHING},
    {"mach_vm_map(size=", "macos", HRI_OOM_HOST_LIKELY},
    {"vm_allocate(size=", "macos", HRI_OOM_HOST_LIKELY},
    {"excessive memory consumption detected at", "lean", HRI_OOM_LIMIT},
    {"function available memory exhausted", "snowflake", HRI_OOM_LIMIT},
    {"gc warning: failed to expand heap by", "boehm-gc", HRI_OOM_HOST_LIKELY},
    {"not enough memory to write total of", "shared-memory", HRI_OOM_HOST},
    {"vmalloc error: size", "kernel", HRI_OOM_HOST},
    {"was killed: out of swap space", "freebsd", HRI_OOM_HOST},
    {"no swap space to grow stack for pid", "solaris", HRI_OOM_HOST},
    {"memory usage limit reached", "xz", HRI_OOM_LIMIT},
    {"allocate memory within the configured max", "kafka", HRI_OOM_LIMIT},
    {"server_error out of memory storing object", "memcached", HRI_OOM_LIMIT},
    {"memory of process exceed limit", "starrocks", HRI_OOM_LIMIT},
    {" exceed limit. ", "", HRI_OOM_NOTHING}, /* of a query, a pool, Doris' older servers too */
    {"memory check failed: cannot alloc", "doris", HRI_OOM_LIMIT},
    {"overcommit mem, wg id", "doris-group", HRI_OOM_LIMIT},
    {"memory tracker check failed", "doris-query", HRI_OOM_LIMIT},
    {"mem tracker check failed", "doris-query", HRI_OOM_LIMIT},
    {"process memory used ", "", HRI_OOM_NOTHING},
    {"query exceeded ", "", HRI_OOM_NOTHING},
    {"memory budget exceeded: ", "", HRI_OOM_NOTHING},
    {"sort exceeded memory limit of", "mongodb", HRI_OOM_LIMIT},
    {"exceeded memory limit for $", "mongodb", HRI_OOM_LIMIT}, /* "... group, but didn't allow external sort" */
    {"sort operation used more than the maximum", "mongodb", HRI_OOM_LIMIT},
    {"sort stage buffered data usage of", "mongodb", HRI_OOM_LIMIT},
    {"core max size: ", "", HRI_OOM_NOTHING},
    {"target maximum memory (gb)", "", HRI_OOM_NOTHING},
    {"ora-04031", "oracle", HRI_OOM_LIMIT}, /* its shared pool */
    {"ora-04030", "oracle", HRI_OOM_HOST},
    {"heapallocator out of memory - could not get memory", "unity", HRI_OOM_HOST},
    {"could not allocate memory: system out of memory!", "unity", HRI_OOM_HOST},
    {"dma alloc failed: [sysmem]", "nvgpu",
     HRI_OOM_HOST_LIKELY},                          /* of the machine's memory, for a GPU that shares it */
    {"[nv_err_no_memory]", "nvrm", HRI_OOM_REPORT}, /* NVIDIA's driver, in the kernel's log; AMD's */
    {"not enough memory for command submission", "amdgpu", HRI_OOM_REPORT},
    {"ora-04036", "oracle", HRI_OOM_LIMIT},
    {"insufficient memory reserved for statement", "greenplum", HRI_OOM_LIMIT},
    {"memory limit exceeded. limit=", "impala", HRI_OOM_LIMIT},
    {"connection memory limit ", "", HRI_OOM_NOTHING},
    {"vm protect failed to allocate", "greenplum", HRI_OOM_LIMIT},
    {"per-query vm protect limit reached", "greenplum", HRI_OOM_LIMIT},
    {"canceling query because of high vmem usage", "greenplum", HRI_OOM_LIMIT},
    {"vmem limit reached", "greenplum", HRI_OOM_LIMIT},
    {"ptsalloc: increase memory in input line", "nwchem", HRI_OOM_LIMIT},
    {"too little memory given for", "orca", HRI_OOM_LIMIT},
    {"please increase maxcore", "orca", HRI_OOM_LIMIT},
    {"mwords of memory are needed", "molpro", HRI_OOM_LIMIT},
    {"insufficient memory available - require", "molpro", HRI_OOM_LIMIT},
    {"query processing would load too many samples into memory", "prometheus", HRI_OOM_LIMIT},
    {"string buffer exceeds maximum allowed length", "postgresql", HRI_OOM_LIMIT},
    {"petsc error: out of memory", "petsc", HRI_OOM_BARE},
    {"worker exceeded memory limit", "cloudflare", HRI_OOM_HOST},
    {"memory usage exceeded request_memory", "htcondor", HRI_OOM_HOST},
    {"not enough space for /dev/shm", "shared-memory", HRI_OOM_HOST},
    {"system is deadlocked on memory", "kernel", HRI_OOM_HOST},
    {"slub: unable to allocate memory", "kernel", HRI_OOM_HOST},
    {"was killed: failed to reclaim memory", "freebsd", HRI_OOM_HOST},
    {"not enough memory in the system to start the", "hyper-v", HRI_OOM_HOST_LIKELY},
    {"memory limit of", "", HRI_OOM_NOTHING},
    {"ran out of memory (used over", "render", HRI_OOM_HOST},
    {"oom command not allowed when used memory", "redis", HRI_OOM_LIMIT},
    {"command not allowed when used memory", "redis", HRI_OOM_LIMIT}, /* its first word was left out */
    {"data too large, data for", "elasticsearch", HRI_OOM_LIMIT},
    {"objectstorefullerror", "ray", HRI_OOM_LIMIT},
    {"nrt_tensor_allocate status=4", "neuron", HRI_OOM_FOREIGN},
    {"used all available ram", "notebook", HRI_OOM_HOST_LIKELY}, /* as people repeat Colab's words */
    {"used all the available ram", "notebook", HRI_OOM_HOST_LIKELY},
    {"using all available ram", "notebook", HRI_OOM_HOST_LIKELY},
    {"pt_devmem allocation failed", "habana", HRI_OOM_FOREIGN},
    {"cuda error in allocate: 2", "cuda-extension", HRI_OOM_BARE},
    {"insufficient memory ", "", HRI_OOM_NOTHING}, /* NWChem's, with a number behind */
    {"killed", "", HRI_OOM_NOTHING},               /* in people's own words (kill.c) */
    {"\xe8\xa2\xabkill", "", HRI_OOM_NOTHING},     /* Chinese: was killed */
    {"code 137", "kill", HRI_OOM_HOST_LIKELY},
    {"error 137", "kill", HRI_OOM_HOST_LIKELY},
    {"status of 137", "kill", HRI_OOM_HOST_LIKELY},
    {"crashed with status 137", "kill", HRI_OOM_HOST_LIKELY},
    {"died with status 137", "kill", HRI_OOM_HOST_LIKELY},
    {"ended with status 137", "kill", HRI_OOM_HOST_LIKELY},
    {"terminated with status 137", "kill", HRI_OOM_HOST_LIKELY},
    {"child returned 137", "kill", HRI_OOM_HOST_LIKELY},
    /* words of which report.c tells whether they belong to a report; behind all others that begin alike */
    {"alloc", GENERAL, HRI_OOM_NOTHING},
    {"memory", GENERAL, HRI_OOM_NOTHING},
    {"\xe6\x98\xbe\xe5\xad\x98", GENERAL, HRI_OOM_NOTHING},                 /* Chinese: a graphics card's memory */
    {"\xe5\x86\x85\xe5\xad\x98", GENERAL, HRI_OOM_NOTHING},                 /* memory */
    {"\xe3\x83\xa1\xe3\x83\xa2\xe3\x83\xaa", GENERAL, HRI_OOM_NOTHING},     /* Japanese */
    {"\xeb\xa9\x94\xeb\xaa\xa8\xeb\xa6\xac", GENERAL, HRI_OOM_NOTHING},     /* Korean */
    {"\xd0\xbf\xd0\xb0\xd0\xbc\xd1\x8f\xd1\x82", GENERAL, HRI_OOM_NOTHING}, /* Russian */
    {"m\xc3\xa9moire", GENERAL, HRI_OOM_NOTHING},                           /* French */
    {"memoria", GENERAL, HRI_OOM_NOTHING},
    {"speicher", GENERAL, HRI_OOM_NOTHING},
    {"oom", GENERAL, HRI_OOM_NOTHING},
    {"vram", GENERAL, HRI_OOM_NOTHING},
    {" ram", GENERAL, HRI_OOM_NOTHING},
    {"hbm", GENERAL, HRI_OOM_NOTHING},
    {"heap", GENERAL, HRI_OOM_NOTHING},
    {"kill", GENERAL, HRI_OOM_NOTHING},
    {"enomem", GENERAL, HRI_OOM_NOTHING},
    {"mmap", GENERAL, HRI_OOM_NOTHING},
    {"reserve ", GENERAL, HRI_OOM_NOTHING},
    {"resources", GENERAL, HRI_OOM_NOTHING},
    {"address space", GENERAL, HRI_OOM_NOTHING},
    {"paging file", GENERAL, HRI_OOM_NOTHING},
    {"out_of_resources", GENERAL, HRI_OOM_NOTHING},
    {"create buffer", GENERAL, HRI_OOM_NOTHING},
    {"create a buffer", GENERAL, HRI_OOM_NOTHING},
    {"createbuffer", GENERAL, HRI_OOM_NOTHING},
};
enum { HEADS = sizeof heads / sizeof *heads };

/* For each hash of the first three bytes the heads that have it, in the order of the table: numbers from 1 on, 0 ends. */
enum { CHAINS = 4096 };
static uint16_t first[CHAINS], next[HEADS + 1], lengths[HEADS + 1];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static unsigned hash3(const char *p) {
  return ((unsigned)(unsigned char)p[0] * 961u + (unsigned)(unsigned char)p[1] * 31u + (unsigned)(unsigned char)p[2]) &
         (CHAINS - 1);
}

static void make(void) {
  for (size_t h = HEADS; h > 0; h--) {
    const unsigned hash = hash3(heads[h - 1].words);
    lengths[h] = (uint16_t)strlen(heads[h - 1].words);
    next[h] = first[hash];
    first[hash] = (uint16_t)h;
  }
}

const hri_oom_head *hri_oom_head_at(const char *text, size_t at, size_t count) {
  if (at + 3 > count) return NULL; /* the shortest has three letters */
  (void)pthread_once(&once, make);
  for (size_t h = first[hash3(text + at)]; h > 0; h = next[h]) {
    const size_t length = lengths[h], end = at + length;
    if (length <= count - at && text[end - 1] == heads[h - 1].words[length - 1] &&
        memcmp(text + at, heads[h - 1].words, length) == 0 &&
        !(hri_is_digit(text[end - 1]) && end < count && hri_is_digit(text[end]))) /* "code 1372" is another code */
      return &heads[h - 1];
  }
  return NULL;
}

bool hri_oom_is_general(const char *text, size_t at, size_t count) {
  const hri_oom_head *head = hri_oom_head_at(text, at, count);
  return head && head->source == GENERAL;
}

bool hri_oom_is_name(const char *text, size_t at, size_t count) {
  const hri_oom_head *head = hri_oom_head_at(text, at, count);
  return head && (!strpbrk(head->words, " =:") || strcmp(head->words, "out of memory") == 0);
}

size_t hri_oom_find(const char *text, size_t from, size_t count) {
  (void)pthread_once(&once, make);
  for (size_t at = from; at + 3 <= count; at++)
    if (first[hash3(text + at)] > 0 && hri_oom_head_at(text, at, count)) return at;
  return count;
}
