/* The lines that record a snapshot at the failure, for those whose advice it is: an observer that PyTorch calls on
 * out-of-memory writes it, in a file of each rank. */
#include "explain/message.h"

/* The rank is asked for at the failure, of the group that the processes are in: Lightning, Slurm and mp.spawn set no RANK, and
 * ranks that took one name would write over each other. What keeps the file from being written (a directory for reading,
 * a full disk) may not take the place of the error that the program meets, which it may know how to go on after.
 * Frameworks begin a training again with a smaller batch, in the same process: a second call does nothing. */
#define RECORD                                                                                                         \
  "import functools, os, torch\n"                                                                                      \
  "\n"                                                                                                                 \
  "@functools.lru_cache(None)\n"                                                                                       \
  "def record_memory():\n"                                                                                             \
  "    torch.cuda.memory._record_memory_history(max_entries=1000000)  # PyTorch 2.1 and later\n"                       \
  "    def dump(device, allocated, device_allocated, device_free):\n"                                                  \
  "        group = torch.distributed.is_available() and torch.distributed.is_initialized()\n"                          \
  "        name = f\"oom-rank{torch.distributed.get_rank() if group else os.environ.get('RANK', 0)}.pickle\"\n"        \
  "        try:\n"                                                                                                     \
  "            torch.cuda.memory._dump_snapshot(name)\n"                                                               \
  "        except Exception as error:\n"                                                                               \
  "            print(f\"the snapshot {name} was not written: {error}\", flush=True)\n"                                 \
  "    torch._C._cuda_attach_out_of_memory_observer(dump)\n"                                                           \
  "\n"

static const struct {
  const char *framework, *text;
} snippets[] = {
    {"transformers", "from transformers import TrainerCallback\n" RECORD "class RecordMemory(TrainerCallback):\n"
                     "    def on_train_begin(self, args, state, control, **kwargs):\n"
                     "        record_memory()\n"
                     "\n"
                     "# trainer.add_callback(RecordMemory()), before trainer.train()\n"},
    {"lightning", "from lightning.pytorch.callbacks import Callback\n" RECORD "class RecordMemory(Callback):\n"
                  "    def on_fit_start(self, trainer, pl_module):\n"
                  "        record_memory()\n"
                  "\n"
                  "# Trainer(callbacks=[RecordMemory()])\n"},
    {"torchtune", "# in a copy of the recipe (tune cp RECIPE my_recipe.py; tune run my_recipe.py --config ...)\n" RECORD
                  "# record_memory() as the first line of recipe_main\n"},
    {"", RECORD "record_memory()  # once the rank's device is set, before the model is made\n"},
};
enum { SNIPPETS = sizeof snippets / sizeof *snippets };

const char *hr_oom_snippet(const hr_oom_failure *failure) {
  bool asked = false;
  for (uint32_t k = 0; k < failure->advice_count; k++) asked = asked || hri_oom_asks_for_snapshot(&failure->advice[k]);
  if (!asked) return NULL;
  for (unsigned k = 0; k + 1 < SNIPPETS; k++)
    if (strcmp(failure->framework, snippets[k].framework) == 0) return snippets[k].text;
  return snippets[SNIPPETS - 1].text;
}
