/* What a conversation looks like to each family, written anew from the layouts that the model cards give. In all of them the
 * content of a message may be a text or a list of parts, of which those with a text count; what the model itself writes, its
 * end-of-turn token included, stands in a generation block, so that masks work. */
#include "chat/presets.h"

#include <headroom/chat.h>

#include <string.h>

/* The text of a message. */
#define TEXT \
  "{%- macro text(content) -%}\n" \
  "{%- if content is string -%}{{ content }}{%- elif content is iterable -%}\n" \
  "{%- for part in content -%}{%- if part is mapping and part.text is string -%}{{ part.text }}{%- elif part is string -%}{{ part }}{%- endif -%}{%- endfor -%}\n" \
  "{%- endif -%}\n" \
  "{%- endmacro -%}\n"

/* For layouts in which user and assistant take turns: `system` and `turns`. */
#define TURNS \
  TEXT \
  "{%- set system = '' -%}\n" \
  "{%- set turns = messages -%}\n" \
  "{%- if messages[0].role == 'system' -%}{%- set system = text(messages[0].content) | trim -%}{%- set turns = messages[1:] -%}{%- endif -%}\n" \
  "{%- for message in turns -%}\n" \
  "{%- if message.role != ('user' if loop.index0 is even else 'assistant') -%}\n" \
  "{{ raise_exception('after an optional system message, the roles must alternate: user, assistant, user, ...; message ' ~ loop.index ~ ' is of ' ~ message.role) }}\n" \
  "{%- endif -%}\n" \
  "{%- endfor -%}\n"

static const char chatml[] =
    TEXT
    "{%- for message in messages -%}\n"
    "{{ '<|im_start|>' + message.role + '\\n' }}\n"
    "{%- if message.role == 'assistant' -%}{% generation %}{{ text(message.content) + '<|im_end|>' }}{% endgeneration %}\n"
    "{%- else -%}{{ text(message.content) + '<|im_end|>' }}{%- endif -%}\n"
    "{{ '\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}\n";

static const char llama2[] =
    TURNS
    "{%- for message in turns -%}\n"
    "{%- if message.role == 'user' -%}\n"
    "{{ bos_token ~ '[INST] ' }}{%- if loop.first and system -%}{{ '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' }}{%- endif -%}\n"
    "{{ text(message.content) | trim + ' [/INST]' }}\n"
    "{%- else -%}{{ ' ' }}{% generation %}{{ text(message.content) | trim ~ ' ' ~ eos_token }}{% endgeneration %}{%- endif -%}\n"
    "{%- endfor -%}\n";

static const char llama3[] =
    TEXT
    "{{ bos_token }}\n"
    "{%- for message in messages -%}\n"
    "{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}\n"
    "{%- if message.role == 'assistant' -%}{% generation %}{{ text(message.content) | trim + '<|eot_id|>' }}{% endgeneration %}\n"
    "{%- else -%}{{ text(message.content) | trim + '<|eot_id|>' }}{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif -%}\n";

static const char gemma[] =
    TURNS
    "{{ bos_token }}\n"
    "{%- for message in turns -%}\n"
    "{%- if message.role == 'user' -%}\n"
    "{{ '<start_of_turn>user\\n' }}{%- if loop.first and system -%}{{ system + '\\n\\n' }}{%- endif -%}{{ text(message.content) | trim + '<end_of_turn>\\n' }}\n"
    "{%- else -%}\n"
    "{{ '<start_of_turn>model\\n' }}{% generation %}{{ text(message.content) | trim + '<end_of_turn>' }}{% endgeneration %}{{ '\\n' }}\n"
    "{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}\n";

static const char mistral[] =
    TURNS
    "{{ bos_token }}\n"
    "{%- for message in turns -%}\n"
    "{%- if message.role == 'user' -%}\n"
    "{{ '[INST] ' }}{%- if loop.first and system -%}{{ system + '\\n\\n' }}{%- endif -%}{{ text(message.content) + '[/INST]' }}\n"
    "{%- else -%}{{ ' ' }}{% generation %}{{ text(message.content) | trim ~ eos_token }}{% endgeneration %}{%- endif -%}\n"
    "{%- endfor -%}\n";

static const char phi3[] =
    TEXT
    "{%- for message in messages -%}\n"
    "{{ '<|' + message.role + '|>\\n' }}\n"
    "{%- if message.role == 'assistant' -%}{% generation %}{{ text(message.content) + '<|end|>' }}{% endgeneration %}\n"
    "{%- else -%}{{ text(message.content) + '<|end|>' }}{%- endif -%}\n"
    "{{ '\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- else -%}{{ eos_token }}{%- endif -%}\n";

static const char phi4[] =
    TEXT
    "{%- for message in messages -%}\n"
    "{{ '<|im_start|>' + message.role + '<|im_sep|>' }}\n"
    "{%- if message.role == 'assistant' -%}{% generation %}{{ text(message.content) + '<|im_end|>' }}{% endgeneration %}\n"
    "{%- else -%}{{ text(message.content) + '<|im_end|>' }}{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant<|im_sep|>' }}{%- endif -%}\n";

static const char zephyr[] =
    TEXT
    "{%- for message in messages -%}\n"
    "{{ '<|' + message.role + '|>\\n' }}\n"
    "{%- if message.role == 'assistant' -%}{% generation %}{{ text(message.content) ~ eos_token }}{% endgeneration %}\n"
    "{%- else -%}{{ text(message.content) ~ eos_token }}{%- endif -%}\n"
    "{{ '\\n' }}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '<|assistant|>\\n' }}{%- endif -%}\n";

static const char alpaca[] =
    TURNS
    "{{ bos_token }}{{ system or 'Below is an instruction that describes a task. Write a response that appropriately completes the request.' }}\n"
    "{%- for message in turns -%}\n"
    "{%- if message.role == 'user' -%}{{ '\\n\\n### Instruction:\\n' + text(message.content) }}\n"
    "{%- else -%}{{ '\\n\\n### Response:\\n' }}{% generation %}{{ text(message.content) ~ eos_token }}{% endgeneration %}{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ '\\n\\n### Response:\\n' }}{%- endif -%}\n";

static const char vicuna[] =
    TURNS
    "{{ bos_token }}{{ system or \"A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions.\" }}\n"
    "{%- for message in turns -%}\n"
    "{%- if message.role == 'user' -%}{{ ' USER: ' + text(message.content) | trim }}\n"
    "{%- else -%}{{ ' ASSISTANT: ' }}{% generation %}{{ text(message.content) | trim ~ eos_token }}{% endgeneration %}{%- endif -%}\n"
    "{%- endfor -%}\n"
    "{%- if add_generation_prompt -%}{{ ' ASSISTANT:' }}{%- endif -%}\n";

static const struct {
  const char *name, *text;
} presets[] = {
    {"alpaca", alpaca}, {"chatml", chatml}, {"gemma", gemma}, {"llama2", llama2}, {"llama3", llama3},
    {"mistral", mistral}, {"phi3", phi3},   {"phi4", phi4},   {"vicuna", vicuna}, {"zephyr", zephyr},
};
enum { PRESET_COUNT = sizeof presets / sizeof *presets };

const char *hri_chat_preset(const char *name) {
  size_t i;
  for (i = 0; i < PRESET_COUNT; i++)
    if (strcmp(presets[i].name, name) == 0) return presets[i].text;
  return NULL;
}

const char *hri_chat_preset_list(void) { return "alpaca, chatml, gemma, llama2, llama3, mistral, phi3, phi4, vicuna, zephyr"; }

uint32_t hr_chat_preset_count(void) { return PRESET_COUNT; }
const char *hr_chat_preset_name(uint32_t index) { return index < PRESET_COUNT ? presets[index].name : NULL; }
