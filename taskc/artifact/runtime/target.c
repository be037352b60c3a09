/* Which of the embedded targets a GPU can run. */
#include <stdio.h>
#include <string.h>

#include "runtime.h"

/* "sm_90a" -> 90, with the suffix; 0: not of that form. */
static int arch_number(const char *arch, char *suffix) {
  int number = 0;
  if (strncmp(arch, "sm_", 3) == 0) arch += 3;
  else if (strncmp(arch, "compute_", 8) == 0) arch += 8;
  else return 0;
  while (*arch >= '0' && *arch <= '9' && number < 1000) number = number * 10 + (*arch++ - '0');
  *suffix = *arch;
  return number;
}

/* How well an image fits a GPU: 0 not at all, higher is better. A cubin runs within its major version from its minor
 * version on; with suffix 'a' on its own version only. PTX without suffix translates for any newer GPU. */
int image_fits(const payload *p, const fmt_image *image, int capability) {
  char suffix = 0;
  int arch = arch_number(text_of(p, image->arch), &suffix);
  if (!arch || arch > capability) return 0;
  if (suffix == 'a' && arch != capability) return 0;
  if (suffix == 'f' && arch / 10 != capability / 10) return 0;
  if (image->kind == FMT_IMAGE_KIND_PTX) return 1 + arch;
  if (image->kind != FMT_IMAGE_KIND_CUBIN || arch / 10 != capability / 10) return 0;
  return 10000 + 10 * arch + (suffix == 'a' ? 2 : suffix == 'f');
}

static void list_images(const payload *p, char *text, size_t bytes) {
  static const char *const kinds[] = {"cubin", "ptx", "host"};
  size_t used = 0;
  text[0] = 0;
  for (uint32_t i = 0; i < p->header->images.count && used < bytes; ++i) {
    const fmt_image *image = &p->images[i];
    char one[64];
    snprintf(one, sizeof one, "%s (%s)", text_of(p, image->arch), kinds[image->kind]);
    if (strstr(text, one)) continue;
    int n = snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", one);
    used += n > 0 ? (size_t)n : 0;
  }
}

taskc_status choose_target(const payload *p, int capability, const char *device, const fmt_target **target, int *kind,
                           error *e) {
  int best = 0;
  for (uint32_t t = 0; t < p->header->targets.count; ++t)
    for (uint32_t i = 0; i < p->targets[t].images.count; ++i) {
      const fmt_image *image = &p->images[p->targets[t].images.first + i];
      int fit = image_fits(p, image, capability);
      if (fit <= best) continue;
      best = fit;
      *target = &p->targets[t];
      *kind = (int)image->kind;
    }
  if (best) return TASKC_OK;
  char have[512];
  list_images(p, have, sizeof have);
  return fail(e, TASKC_NO_DEVICE, "%s (compute capability %d.%d) can run none of the embedded code: %s; compile with --target sm_%d%s",
              device, capability / 10, capability % 10, have[0] ? have : "none", capability, capability >= 90 ? "a" : "");
}
