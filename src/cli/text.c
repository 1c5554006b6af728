#include "cli/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <headroom/device.h>

#include "base/file.h"
#include "base/text.h"

/* ---- numbers as text ---- */

double percent_more(double seconds, double base) {
  const double percent = base > 0 ? round(100 * (seconds / base - 1)) : 0;
  return percent == 0 ? 0 : percent;
}

char *text_size(uint64_t bytes, char out[TEXT_BYTES]) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = (double)bytes / 1024;
  size_t unit = 0;
  if (bytes < 1024) {
    (void)snprintf(out, TEXT_BYTES, "%llu B", (unsigned long long)bytes);
    return out;
  }
  for (; value >= 1023.995 && unit < 5; unit++) value /= 1024;
  (void)snprintf(out, TEXT_BYTES, value < 99.995 ? "%.2f %s" : "%.1f %s", value, units[unit]);
  return out;
}

char *text_count(double count, char out[TEXT_BYTES]) {
  static const char *const units[] = {"", " k", " M", " G", " T", " P"};
  size_t unit = 0;
  for (; count >= (unit == 0 ? 9999.5 : 999.95) && unit < 5; unit++) count /= 1000;
  (void)snprintf(out, TEXT_BYTES, unit == 0 ? "%.0f%s" : count < 99.95 ? "%.2f%s" : "%.1f%s", count, units[unit]);
  return out;
}

char *text_parameters(uint64_t count, char out[TEXT_BYTES]) {
  if (count < 100000) (void)snprintf(out, TEXT_BYTES, "%llu", (unsigned long long)count);
  else if (count < 999950000) (void)snprintf(out, TEXT_BYTES, "%.1f M", (double)count / 1e6);
  else (void)snprintf(out, TEXT_BYTES, "%.2f B", (double)count / 1e9);
  return out;
}

char *text_clock(double seconds, char out[TEXT_BYTES]) {
  unsigned long long whole;
  if (!(seconds >= 0) || seconds > 1e9) {
    (void)snprintf(out, TEXT_BYTES, "-:--");
    return out;
  }
  whole = (unsigned long long)(seconds + 0.5);
  if (whole >= 3600) (void)snprintf(out, TEXT_BYTES, "%llu:%02llu:%02llu", whole / 3600, whole / 60 % 60, whole % 60);
  else (void)snprintf(out, TEXT_BYTES, "%llu:%02llu", whole / 60, whole % 60);
  return out;
}

char *text_seconds(double seconds, char out[TEXT_BYTES]) {
  if (!isfinite(seconds)) (void)snprintf(out, TEXT_BYTES, "?");
  else if (seconds < 1e-3) (void)snprintf(out, TEXT_BYTES, "%.1f us", seconds * 1e6);
  else if (seconds < 1) (void)snprintf(out, TEXT_BYTES, "%.3g ms", seconds * 1e3);
  else if (seconds < 600) (void)snprintf(out, TEXT_BYTES, seconds < 100 ? "%.2f s" : "%.0f s", seconds);
  else return text_clock(seconds, out);
  return out;
}

char *text_number(double number, char out[TEXT_BYTES]) {
  for (int digits = 6; digits <= 17; digits++) {
    (void)snprintf(out, TEXT_BYTES, "%.*g", digits, number);
    if (strtod(out, NULL) == number) break;
  }
  return out;
}

/* ---- text as numbers ---- */

bool text_parse_count(const char *text, uint64_t low, uint64_t high, uint64_t *count) {
  unsigned long long value;
  char *end;
  if (*text < '0' || *text > '9') return false;
  errno = 0;
  value = strtoull(text, &end, 10);
  if (*end || errno != 0 || value < low || value > high) return false;
  *count = value;
  return true;
}

static int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool text_unescape(const char *text, char *out) {
  for (; *text; text++) {
    if (*text != '\\') {
      *out++ = *text;
      continue;
    }
    switch (*++text) {
    case 'n': *out++ = '\n'; break;
    case 't': *out++ = '\t'; break;
    case 'r': *out++ = '\r'; break;
    case '\\': *out++ = '\\'; break;
    case 'x':
      if (hex_digit(text[1]) < 0 || hex_digit(text[2]) < 0) return false;
      if (hex_digit(text[1]) + hex_digit(text[2]) == 0) return false; /* the option is passed on as a C string */
      *out++ = (char)(hex_digit(text[1]) * 16 + hex_digit(text[2]));
      text += 2;
      break;
    default: return false;
    }
  }
  *out = 0;
  return true;
}

/* ---- memory ---- */

void text_refused(size_t bytes) {
  uint64_t room;
  const char *limit = hr_host_limit_now(&room);
  (void)fprintf(stderr, "headroom: the host refused %zu bytes for the command line\n  %s leaves %s\n", bytes, limit,
                SIZE_TEXT(room));
  exit(hr_status_exit_code(HR_ERROR_MEMORY));
}

static void *must(void *memory, size_t bytes) {
  if (!memory) text_refused(bytes);
  return memory;
}

void *text_alloc(size_t bytes) { return must(calloc(1, bytes ? bytes : 1), bytes); }
void *text_grow(void *memory, size_t bytes) { return must(realloc(memory, bytes ? bytes : 1), bytes); }

char *text_copy(const char *text, size_t bytes) {
  char *copy = text_alloc(bytes + 1);
  memcpy(copy, text, bytes);
  return copy;
}

/* ---- files ---- */

bool text_is_stream(FILE *file) {
  struct stat info;
  return fstat(fileno(file), &info) == 0 && !S_ISREG(info.st_mode);
}

/* A pipe without a name: the shell made both of its ends. A FIFO may wait for its writer for ever. */
static bool is_callers_pipe(int fd, const struct stat *info) {
  struct statfs system;
  return S_ISFIFO(info->st_mode) && fstatfs(fd, &system) == 0 && system.f_type == PIPEFS_MAGIC;
}

static hr_status refuse_kind(const char *path, const char *what, mode_t mode, hr_error *error) {
  const char *kind = S_ISFIFO(mode)   ? "a FIFO"
                     : S_ISDIR(mode)  ? "a directory"
                     : S_ISSOCK(mode) ? "a socket"
                                      : "a device";
  hr_status status = hri_fail(error, HR_ERROR_INPUT, "%s %s is %s, not a file", what, path, kind);
  return hri_hint(error, status, "name a file, or - for standard input where the command takes it");
}

/* Endless devices (/dev/zero) are no input; a terminal and /dev/null are. */
static FILE *standard_input(const char *what, hr_error *error) {
  struct stat info, null;
  bool device = fstat(STDIN_FILENO, &info) == 0 && S_ISCHR(info.st_mode) && !isatty(STDIN_FILENO);
  if (!device || (stat("/dev/null", &null) == 0 && info.st_rdev == null.st_rdev)) return stdin;
  (void)refuse_kind("from standard input", what, info.st_mode, error);
  return NULL;
}

FILE *text_open(const char *path, const char *what, hr_error *error) {
  struct stat info;
  char named[4096];
  FILE *file;
  int fd;
  if (strcmp(path, "-") == 0) return standard_input(what, error);
  (void)snprintf(named, sizeof named, "%s %s", what, path);
  fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0 || fstat(fd, &info) != 0) {
    (void)hri_fail_errno(error, errno, "open", named);
    if (fd >= 0) (void)close(fd);
    return NULL;
  }
  if (!S_ISREG(info.st_mode) && !is_callers_pipe(fd, &info)) {
    (void)refuse_kind(path, what, info.st_mode, error);
    (void)close(fd);
    return NULL;
  }
  file = fcntl(fd, F_SETFL, 0) == 0 ? fdopen(fd, "rb") : NULL;
  if (file) return file;
  (void)hri_fail_errno(error, errno, "open", named);
  (void)close(fd);
  return NULL;
}

void text_close(FILE *file) {
  if (file && file != stdin) (void)fclose(file);
}

/* ---- errors ---- */

#define SHOWN "\n\t" /* control characters that lay a text out */
static void wrap_from(FILE *stream, unsigned column, unsigned indent, const char *text);

char *text_plain(const char *text) {
  char *plain = text_copy(text, strlen(text));
  hri_plain_text(plain, SHOWN);
  return plain;
}

/* One line for programs that read it; on a terminal it is wrapped between words. */
static void print_plain(const char *before, const char *text) {
  char plain[HR_ERROR_MESSAGE_BYTES + HR_ERROR_HINT_BYTES];
  (void)snprintf(plain, sizeof plain, "%s", text);
  hri_plain_text(plain, SHOWN);
  if (isatty(STDERR_FILENO)) wrap_from(stderr, (unsigned)strlen(before), 2, plain);
  else (void)fprintf(stderr, "%s\n", plain);
}

void text_print_error(const hr_error *error) {
  static const char name[] = "headroom: ", try[] = "  try: ";
  (void)fprintf(stderr, "%sheadroom:%s ", screen_style(stderr, STYLE_BAD), screen_style(stderr, STYLE_PLAIN));
  print_plain(name, error->message);
  if (!error->hint[0]) return;
  (void)fprintf(stderr, "%s", try);
  print_plain(try, error->hint);
}

/* ---- the screen ---- */

static bool color_on[3]; /* by file descriptor: 1 and 2 */

static bool terminal(int fd) {
  const char *term = getenv("TERM");
  return isatty(fd) && !(term && strcmp(term, "dumb") == 0);
}

void screen_init(color_mode mode) {
  const char *none = getenv("NO_COLOR");
  bool refused = mode == COLOR_NEVER || (mode == COLOR_AUTO && none && *none);
  for (int fd = 1; fd <= 2; fd++) color_on[fd] = mode == COLOR_ALWAYS || (!refused && terminal(fd));
}

static int stream_number(const FILE *stream) { return stream == stdout ? 1 : stream == stderr ? 2 : 0; }

const char *screen_style(const FILE *stream, style wanted) {
  static const char *const sequences[] = {"\033[0m", "\033[1m", "\033[1;32m", "\033[1;31m", "\033[33m", "\033[2m"};
  return color_on[stream_number(stream)] ? sequences[wanted] : "";
}

bool screen_live(const FILE *stream) { return stream_number(stream) > 0 && terminal(stream_number(stream)); }

unsigned screen_width(FILE *stream) {
  struct winsize size;
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col < 20) return 80;
  return size.ws_col;
}

unsigned screen_columns(FILE *stream) {
  struct winsize size;
  if (!isatty(fileno(stream)) || ioctl(fileno(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return SCREEN_USUAL;
  return size.ws_col < SCREEN_LEAST ? SCREEN_LEAST : size.ws_col > SCREEN_MOST ? SCREEN_MOST : size.ws_col;
}

/* Bytes of the next word; of one that no line holds, those up to the last comma, bar or parenthesis that one does. */
static int word_bytes(const char *text, unsigned room) {
  const size_t length = strcspn(text, " \n");
  size_t cut = length > room ? room : 0;
  while (cut > 0 && !strchr(",|(", text[cut - 1])) cut--;
  return (int)(cut ? cut : length);
}

static void put_plain(FILE *stream, const char *bytes, size_t count) {
  for (size_t i = 0, step; i < count; i += step) {
    const size_t control = strchr(SHOWN, bytes[i]) && bytes[i] ? 0 : hri_control_bytes(bytes + i, count - i);
    step = control ? control : 1;
    (void)fputc(control ? '?' : bytes[i], stream);
  }
}

/* Words from the current column on; lines after the first start at `indent`. Ends in a closed line. Takes no memory: what is
 * told may be that there is none. */
static void wrap_from(FILE *stream, unsigned column, unsigned indent, const char *text) {
  const unsigned edge = screen_columns(stream) - 1;
  const bool cuts = isatty(fileno(stream)); /* who reads a pipe joins lines by blanks */
  bool first = true;                        /* of its line */
  while (*text) {
    int length = word_bytes(text, cuts && edge > indent ? edge - indent : UINT_MAX);
    if (!first && column + 1 + (unsigned)length > edge) {
      (void)fprintf(stream, "\n%*s", (int)indent, "");
      column = indent;
      first = true;
    }
    if (length > 0) {
      if (!first) (void)fputc(' ', stream);
      put_plain(stream, text, (size_t)length);
      column += (unsigned)length + !first;
      first = false;
    }
    text += length;
    if (*text && !strchr(" \n", *text)) { /* the rest of a cut word */
      (void)fprintf(stream, "\n%*s", (int)indent, "");
      column = indent;
      first = true;
    }
    text += strspn(text, " ");
    if (*text == '\n') {
      (void)fprintf(stream, "\n%*s", (int)indent, "");
      column = indent;
      first = true;
      text++;
    }
  }
  (void)fputc('\n', stream);
}

void screen_fold(FILE *stream, const char *text) {
  const size_t columns = screen_columns(stream);
  if (!isatty(fileno(stream))) {
    (void)fputs(text, stream);
    return;
  }
  for (const char *next; *text; text = next) {
    const size_t length = strcspn(text, "\n"), indent = strspn(text, " ");
    next = text + length + (text[length] == '\n');
    if (length < columns) {
      (void)fprintf(stream, "%.*s\n", (int)length, text);
    } else {
      char *line = text_copy(text, length);
      (void)fprintf(stream, "%*s", (int)indent, "");
      wrap_from(stream, (unsigned)indent, (unsigned)indent + 2, line + indent);
      free(line);
    }
  }
}

void screen_put(FILE *stream, const char *bytes, size_t count) {
  if (!isatty(fileno(stream))) {
    screen_write(stream, bytes, count);
    return;
  }
  put_plain(stream, bytes, count);
}

static int output_failure;

static void note_failure(const FILE *stream, bool failed) {
  if (failed && stream == stdout && output_failure == 0) output_failure = errno;
}

void screen_write(FILE *stream, const char *bytes, size_t count) {
  note_failure(stream, fwrite(bytes, 1, count, stream) != count);
}

void screen_flush(FILE *stream) { note_failure(stream, fflush(stream) != 0); }

int screen_failure(void) { return output_failure; }

void screen_name(FILE *stream, const char *name) {
  char *plain = text_plain(name);
  (void)fputs(plain, stream);
  free(plain);
}

void screen_say(FILE *stream, style mark, const char *left, const char *text) {
  const char *begin = mark ? screen_style(stream, mark) : "", *end = mark ? screen_style(stream, STYLE_PLAIN) : "";
  char *plain = text_plain(text);
  (void)fprintf(stream, "%s%s%s ", begin, left, end);
  if (isatty(fileno(stream))) wrap_from(stream, (unsigned)strlen(left) + 1, 2, plain);
  else (void)fprintf(stream, "%s\n", plain);
  free(plain);
}

void screen_beside(FILE *stream, unsigned used, const char *text) {
  enum { BELOW = 4 };
  if (!isatty(fileno(stream)) || used + 2 + strlen(text) < screen_columns(stream)) {
    (void)fprintf(stream, "  %s\n", text);
    return;
  }
  (void)fputc('\n', stream);
  screen_wrap(stream, BELOW, text);
}

void screen_wrap_on(FILE *stream, unsigned used, unsigned further, const char *text) {
  wrap_from(stream, used, further, text);
}

void screen_wrap(FILE *stream, unsigned indent, const char *text) {
  (void)fprintf(stream, "%*s", (int)indent, "");
  wrap_from(stream, indent, indent, text);
}

void screen_hang(FILE *stream, unsigned column, const char *left, const char *text) {
  unsigned used = (unsigned)fprintf(stream, "%s", left);
  if (used + 2 > column) {
    (void)fputc('\n', stream);
    used = 0;
  }
  (void)fprintf(stream, "%*s", (int)(column - used), "");
  wrap_from(stream, column, column, text);
}
