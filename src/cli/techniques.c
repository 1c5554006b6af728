/* headroom help techniques: everything that makes a job need less memory, or shows why it needs more. What a technique
 * saves and costs stands here; what it does to results comes from the table of fields, and what it excludes from the
 * table by which jobs are refused (hr_exclusion_get). */
#include <string.h>

#include <headroom/field.h>
#include <headroom/job.h>

#include "cli/commands.h"
#include "cli/text.h"

enum { LABEL_COLUMNS = 13 };

typedef struct technique {
  const char *field, *value; /* value: a word of the field, or what stands for one; "": the field as such */
  const char *saves, *costs;
} technique;

static const technique techniques[] = {
    {"recompute", "selective",
     "results of norms and activations: the backward makes them again from what products left",
     "norms and activations once more; no product is computed twice"},
    {"recompute", "levels:mlp", "also the hidden of every MLP, the widest activation",
     "one or two of the MLP's products once more"},
    {"recompute", "levels:attention", "all of a layer but its input and the result of its attention",
     "the layer's forward once more, without its attention"},
    {"recompute", "block", "all of a layer but its input: one layer's activations exist at a time",
     "the forward of all layers once more: a third of the products of a step"},
    {"recompute", "sqrt",
     "inputs too: those of every K-th layer are kept, K the root of the number of layers (every:K "
     "for another one)",
     "as block; K layers' inputs exist at a time while they are made again"},
    {"recompute", "auto", "what the budget asks for: a level for each layer, the fastest that fits",
     "what its levels cost, and seconds of planning"},
    {"loss-chunk", "N", "logits: those of N tokens exist at a time, 4 bytes x N x vocabulary",
     "narrower products of the head, which are slower when N is small"},
    {"update", "in-backward", "gradients: each is used up as soon as it is complete, 4 bytes per weight less",
     "clipping, which is off then (its bits are those of --clip 0), and skipping: both need all gradients at once"},
    {"micro-batch", "N", "activations, which go by the rows of a micro-step",
     "with --accumulate for the same rows per step: gradients live through the step, smaller products are slower"},
    {"accumulate", "N", "nothing alone: it keeps the rows of a step where --micro-batch is lowered",
     "gradients that stay alive from one micro-step to the next"},
    {"seq", "N", "activations, and the scores of --attention materialized by its square",
     "context: documents are cut or split there"},
    {"attention", "flash", "the matrix of scores, sequence x sequence for every head: it is never whole",
     "its softmax is computed again in the backward"},
    {"attention", "materialized", "nothing: it is there to show the difference",
     "the matrix of scores, kept for the backward"},
    {"precision", "bf16", "half of all activations",
     "2 bytes per weight for a copy beside the fp32 weights that are "
     "trained; none for weights that are frozen, which become half as large"},
    {"precision", "bf16-pure", "half of weights, gradients and activations: there is no fp32 copy",
     "updates that round stochastically"},
    {"precision", "fp16", "as bf16, on cards that have no bf16 too",
     "as bf16; a range that ends at 65504, and below at 6e-8: the loss is scaled, steps that overflow are skipped"},
    {"precision", "tf32", "time, not bytes: products of a GPU at its rate of tf32; all that is stored is fp32",
     "13 of the 23 bits of each number that is multiplied; sums are fp32"},
    {"moments", "bf16", "half of the optimizer's states", "states that round stochastically"},
    {"weight-packing", "off", "copies of weights in the order in which products read them",
     "speed of products on the CPU"},
    {"weight-packing", "transient", "nothing against off, and against persistent all but one copy at a time",
     "a rearranging before each use"},
    {"weight-packing", "persistent", "time with --accumulate: one rearranging serves all micro-steps",
     "bytes of every packed weight while the step lasts"},
    {"freeze", "WHAT,...", "gradients, states and master weights of what keeps its values, and their backward",
     "what is frozen does not learn"},
    {"lora", "r=N,...",
     "gradients, states and fp32 copies of all weights: r x (in + out) numbers per target are trained "
     "instead of in x out",
     "another function to train: adapters reach less than all weights do; two narrow products "
     "more per target"},
    {"lora", "...,dora", "as r=N,...: 4 bytes and states more per row of a target",
     "the lengths of the rows of W + s B A anew in each pass, which costs r / M of a product with M tokens, and a "
     "result more per product is kept or made again"},
    {"lora", "...,modules_to_save=lm_head", "as r=N,..., of what else is frozen",
     "that module trains whole, with gradient, states and master weights; a head that is tied becomes a tensor of its "
     "own"},
    {"quantize", "nf4", "frozen matrices: 4 bits and a scale of 4 bytes per 64 weights, 0.56 bytes instead of 2 or 4",
     "each weight is dequantized before each use, forward and backward; what is rounded off is gone"},
    {"quantize", "nf4+dq", "as nf4, the scales in 8 bits: 0.52 bytes per weight", "as nf4, and rounding of the scales"},
    {"quantize", "fp4", "as nf4", "as nf4; its values suit normally distributed weights less well"},
    {"quantize", "fp4+dq", "as nf4+dq", "as fp4, and rounding of the scales"},
    {"quantize", "int8", "frozen matrices: 8 bits and a scale of 4 bytes per row, half or a quarter of them",
     "each weight is dequantized before each use; outliers of activations are not treated apart"},
    {"quantize", "keep",
     "frozen matrices of a GGUF file: as many bytes as there, 0.56 (Q4_0, Q4_K) to 1.06 (Q8_0) per weight",
     "each weight is dequantized before each use"},
    {"optimizer", "adamw", "nothing: 8 bytes of states per weight that is trained",
     "what all others are compared with"},
    {"optimizer", "adamw8bit",
     "three quarters of AdamW's states: 2 bytes and a 64th per weight that is trained, not of embeddings and norms",
     "codes are read and made again in every update"},
    {"optimizer", "lion", "one of AdamW's two states, 4 bytes per weight that is trained",
     "another course of training: a tenth of AdamW's learning rate"},
    {"optimizer", "lion8bit",
     "seven eighths of AdamW's states: 1 byte and a 64th per weight, not of embeddings and norms",
     "that of lion, and codes are read and made again in every update"},
    {"optimizer", "adafactor",
     "nearly all of AdamW's states: 4 bytes per row and column of a matrix, 4 per element of a vector",
     "another course of training: no first moment, steps in proportion to a tensor's size, --lr 0.01; a gradient is read "
     "four times in an update"},
    {"optimizer", "momentum", "one of AdamW's two states, 4 bytes per weight that is trained",
     "another course of training, with a learning rate of its own"},
    {"optimizer", "sgd", "both of AdamW's states, 8 bytes per weight that is trained",
     "another course of training, with a learning rate of its own"},
};

/* Whether one side of an exclusion is this technique's option: "--clip", "--update in-backward", or "--precision other
 * than bf16-pure", which is every other value. */
static bool concerns(const char *side, const technique *t) {
  static const char other[] = "other than ";
  size_t length = strlen(t->field), value = strcspn(t->value, ":=");
  if (strncmp(side, "--", 2) != 0 || strncmp(side + 2, t->field, length) != 0) return false;
  side += 2 + length;
  if (*side == 0) return true;
  if (*side++ != ' ') return false;
  if (strncmp(side, other, strlen(other)) == 0) return strcmp(side + strlen(other), t->value) != 0;
  return strncmp(side, t->value, value) == 0 && (side[value] == 0 || side[value] == ':');
}

static void print_exclusions(FILE *stream, const technique *t) {
  hr_exclusion e;
  for (uint32_t i = 0; hr_exclusion_get(i, &e); i++) {
    const char *rest = concerns(e.a, t) ? e.b : concerns(e.b, t) ? e.a : NULL;
    char text[512];
    if (!rest) continue;
    (void)snprintf(text, sizeof text, "%s: %s", rest, e.reason);
    screen_hang(stream, LABEL_COLUMNS, "  excludes", text);
  }
}

/* That of the field, but for one value of quantize: what stays in its file's blocks has the file's values. */
static hr_effect effect_of(const technique *t) {
  if (strcmp(t->field, "quantize") == 0 && strcmp(t->value, "keep") == 0) return HR_EFFECT_SAME_BITS;
  return hr_field_find(t->field)->effect;
}

void help_techniques(FILE *stream) {
  screen_wrap(
      stream, 0,
      "What decides the bytes of a job. `headroom plan` says what each saves for yours, to the byte, and offers "
      "those that help where it does not fit. `--auto` chooses among `--recompute`, `--micro-batch` with "
      "`--accumulate`, `--loss-chunk` and `--weight-packing`; what is other numerics or another algorithm is never taken unasked.");
  for (size_t i = 0; i < sizeof techniques / sizeof *techniques; i++) {
    const technique *t = &techniques[i];
    (void)fprintf(stream, "\n%s--%s %s%s\n", screen_style(stream, STYLE_BOLD), t->field, t->value,
                  screen_style(stream, STYLE_PLAIN));
    screen_hang(stream, LABEL_COLUMNS, "  results", hr_effect_name(effect_of(t)));
    screen_hang(stream, LABEL_COLUMNS, "  saves", t->saves);
    screen_hang(stream, LABEL_COLUMNS, "  costs", t->costs);
    print_exclusions(stream, t);
  }
}
