/* Words of the enumerations that say how data becomes rows: fields of a job. */
#include <headroom/data.h>

static const char *const format_names[HR_DATA_FORMAT_COUNT] = {
    [HR_DATA_AUTO] = "auto",         [HR_DATA_TEXT] = "text",         [HR_DATA_LINES] = "lines",   [HR_DATA_TEXT_FIELD] = "text-field",
    [HR_DATA_PROMPT] = "prompt-completion", [HR_DATA_MESSAGES] = "messages", [HR_DATA_SHAREGPT] = "sharegpt", [HR_DATA_ALPACA] = "alpaca",
    [HR_DATA_TOKENS] = "tokens",     [HR_DATA_NANOGPT] = "nanogpt",   [HR_DATA_LLMC] = "llmc",
};

const char *hr_data_format_name(hr_data_format format) { return (unsigned)format < HR_DATA_FORMAT_COUNT ? format_names[format] : "?"; }

const char *hr_loss_scope_name(hr_loss_scope scope) {
  static const char *const names[] = {"auto", "all", "assistant", "completion"};
  return (unsigned)scope < 4 ? names[scope] : "?";
}

const char *hr_truncate_name(hr_truncate truncate) {
  static const char *const names[] = {"split", "keep-start", "keep-end", "drop"};
  return (unsigned)truncate < 4 ? names[truncate] : "?";
}

const char *hr_packing_name(hr_packing packing) {
  static const char *const names[] = {"pack", "off", "wrapped"};
  return (unsigned)packing < 3 ? names[packing] : "?";
}
