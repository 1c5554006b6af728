/* Templates by name, for models whose files have none. Each is an ordinary template and is treated as one. */
#ifndef HRI_CHAT_PRESETS_H
#define HRI_CHAT_PRESETS_H

/* The text of a preset; NULL when there is none of this name. */
const char *hri_chat_preset(const char *name);
/* ", "-joined names for messages. */
const char *hri_chat_preset_list(void);

#endif
