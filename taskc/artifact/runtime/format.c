/* Finds the payload of this library and sets up its tables. */
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "compat.h"
#include "runtime.h"

/* Written by the library writer; volatile, or the compiler would take the zeros for granted. */
static const volatile struct {
  char magic[16];
  uint64_t delta; /* from this record to the payload, when loaded */
  uint64_t bytes;
} anchor __attribute__((section(".taskc.anchor"), used, aligned(16))) = {"TASKC ANCHOR 1\n", 0, 0};

/* Marks the file as ours. Its program header is the one that the writer turns into the payload's segment. */
static const struct {
  uint32_t name_bytes, text_bytes, type;
  char name[8];
  uint32_t api_version;
} note __attribute__((section(".note.taskc"), used, aligned(4))) = {6, 4, 1, "taskc", TASKC_API_VERSION};

/* A segment that ends beyond its file would fault when read. */
static taskc_status check_file(error *e) {
  Dl_info info;
  if (!dladdr((const void *)&anchor, &info) || !info.dli_fname) return TASKC_OK;
  int file = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  if (file < 0) return TASKC_OK; /* moved away after it was loaded: nothing to compare with */
  off_t size = lseek(file, 0, SEEK_END);
  close(file);
  const Elf64_Ehdr *elf = info.dli_fbase;
  const Elf64_Phdr *segments = (const Elf64_Phdr *)((const char *)info.dli_fbase + elf->e_phoff);
  for (unsigned i = 0; i < elf->e_phnum; ++i) {
    uint64_t end = segments[i].p_offset + segments[i].p_filesz;
    if (segments[i].p_type == PT_LOAD && size >= 0 && end > (uint64_t)size)
      return fail(e, TASKC_BAD_LIBRARY, "%s is truncated: it has %lld bytes of %llu; copy or compile it again", info.dli_fname,
                  (long long)size, (unsigned long long)end);
  }
  return TASKC_OK;
}

taskc_status find_payload(const unsigned char **base, uint64_t *bytes, error *e) {
  (void)note;
  if (!anchor.delta) return fail(e, TASKC_BAD_LIBRARY, "this is the bare runtime: it holds no model");
  if (check_file(e)) return e->status;
  *base = (const unsigned char *)&anchor + anchor.delta;
  *bytes = anchor.bytes;
  return TASKC_OK;
}

static uint32_t crc32(const unsigned char *data, uint64_t bytes) {
  static const uint32_t nibbles[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                       0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
  uint32_t crc = ~0u;
  for (uint64_t i = 0; i < bytes; ++i) {
    crc = nibbles[(crc ^ data[i]) & 15] ^ (crc >> 4);
    crc = nibbles[(crc ^ (uint32_t)(data[i] >> 4)) & 15] ^ (crc >> 4);
  }
  return ~crc;
}

static taskc_status check_header(const fmt_header *h, uint64_t bytes, error *e) {
  if (bytes < sizeof *h || memcmp(h->magic, FMT_MAGIC, sizeof h->magic) != 0)
    return fail(e, TASKC_BAD_LIBRARY, "the library's payload is not a taskc model");
  if (h->version != FMT_VERSION)
    return fail(e, TASKC_BAD_LIBRARY, "the library's payload has format version %u, its runtime reads version %u: compile again",
                h->version, FMT_VERSION);
  if (h->payload_bytes != bytes || h->head_bytes < sizeof *h || h->head_bytes > bytes)
    return fail(e, TASKC_BAD_LIBRARY, "the library's payload is damaged: its sizes disagree (%llu and %llu bytes)",
                (unsigned long long)h->payload_bytes, (unsigned long long)bytes);
  uint32_t crc = crc32((const unsigned char *)h + 16, h->head_bytes - 16);
  if (crc != h->crc)
    return fail(e, TASKC_BAD_LIBRARY, "the library's payload is damaged: check sum %08x in place of %08x", crc, h->crc);
  if (h->weights_offset % 4096 || h->weights_offset < h->head_bytes || h->weights_offset > bytes ||
      h->weights_bytes > bytes - h->weights_offset)
    return fail(e, TASKC_BAD_LIBRARY, "the library's payload is damaged: its weights lie outside it");
  return TASKC_OK;
}

static taskc_status table(const payload *p, fmt_table t, uint64_t record, const char *name, const void *rows, error *e) {
  uint64_t end = p->header->head_bytes;
  if (t.record_bytes != record || (record > 1 && t.offset % 8) || t.offset > end || (end - t.offset) / record < t.count)
    return fail(e, TASKC_BAD_LIBRARY, "the library's payload is damaged: table '%s' lies outside it", name);
  *(const void **)rows = p->base + t.offset;
  return TASKC_OK;
}

taskc_status read_payload(payload *p, const unsigned char *base, uint64_t bytes, error *e) {
  memset(p, 0, sizeof *p);
  p->base = base;
  p->bytes = bytes;
  p->header = (const fmt_header *)base;
  if (check_header(p->header, bytes, e)) return e->status;
#define TABLE(name) \
  if (table(p, p->header->name, sizeof *p->name, #name, &p->name, e)) return e->status
  TABLE(strings);
  TABLE(code);
  TABLE(symbols);
  TABLE(dims);
  TABLE(inputs);
  TABLE(outputs);
  TABLE(targets);
  TABLE(images);
  TABLE(kernels);
  TABLE(tensors);
  TABLE(steps);
  TABLE(args);
  TABLE(maps);
  TABLE(edges);
#undef TABLE
  return check_rows(p, e);
}
