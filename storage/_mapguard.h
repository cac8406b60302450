/* Reading a map of a file whose sectors cannot be read, or that was cut short, is a SIGBUS. Here the page then
 * becomes zeros and the reading goes on: whatever is read is believed only when its checksum holds, so a bad
 * sector is damage of what lay in it, and not the end of the server. Other faults go where they went before.
 *
 * Every map is entered while it exists, by any thread; the handler looks through the table. A map that finds the
 * table full is read without this.
 */
#ifndef MARTLET_MAPGUARD_H
#define MARTLET_MAPGUARD_H

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define GUARDED_MAPS_MAX (1 << 16)

typedef struct {
    _Atomic uintptr_t start;    /* 0: free */
    _Atomic uintptr_t end;
} GuardedMap;

static GuardedMap guarded_maps[GUARDED_MAPS_MAX];
static _Atomic uint32_t guarded_next;   /* where to look for a free place */
static _Atomic uint32_t guarded_faults; /* pages that became zeros */
static struct sigaction guard_before;
static uintptr_t guard_page_size;

static int is_guarded(uintptr_t at)
{
    for (size_t i = 0; i < GUARDED_MAPS_MAX; i++)
        if (atomic_load(&guarded_maps[i].start) - 1 < at && at < atomic_load(&guarded_maps[i].end))
            return 1;
    return 0;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    uintptr_t at = (uintptr_t)info->si_addr;
    void *page = (void *)(at & ~(guard_page_size - 1));
    if (is_guarded(at) && mmap(page, guard_page_size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == page) {
        atomic_fetch_add(&guarded_faults, 1);
        return;
    }
    /* Not ours: it happens again at once, and is whosever it was. */
    sigaction(SIGBUS, &guard_before, NULL);
    (void)number;
    (void)context;
}

static void install_guard(void)
{
    struct sigaction action = {0};
    if (guard_page_size)
        return;
    guard_page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &guard_before);
}

/* The place to give back, or -1. */
static int32_t guard_map(const void *data, size_t size)
{
    for (uint32_t tried = 0; tried < GUARDED_MAPS_MAX; tried++) {
        uint32_t place = atomic_fetch_add(&guarded_next, 1) % GUARDED_MAPS_MAX;
        uintptr_t nobody = 0;
        if (atomic_compare_exchange_strong(&guarded_maps[place].start, &nobody, (uintptr_t)data)) {
            atomic_store(&guarded_maps[place].end, (uintptr_t)data + size);
            return (int32_t)place;
        }
    }
    return -1;
}

static void unguard_map(int32_t place)
{
    if (place >= 0) {
        atomic_store(&guarded_maps[place].end, 0);
        atomic_store(&guarded_maps[place].start, 0);
    }
}

static uint32_t guarded_fault_count(void)
{
    return atomic_load(&guarded_faults);
}

#endif
