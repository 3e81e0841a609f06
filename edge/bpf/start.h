/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What the program and user space share: src/enforce/bpf/layout.rs has the same values in Rust, and a test compares
 * sizes and offsets. Every struct has explicit padding. LAYOUT changes whenever one of them does, but for what was padding and means
 * nothing while it is 0.
 */
#pragma once

#include <linux/types.h>

#define LAYOUT 4

/* The kernel's own first window (RFC 6928), segments: more than that is sent only because of us. */
#define KERNEL_WINDOW 10

/* Segments a round trip that are left to each, however many start. */
#define LEAST_SHARE 2

/* "Lately", of the start budget: PERIODS times PERIOD_NS, which is 10 s. */
#define PERIODS 4
#define PERIOD_NS 2500000000ULL

/* So many times longer a cap holds beside others. */
#define CROWDED_LIFT 4

/* Addresses of which the brake knows how much they lost, per arm. */
#define SUSPECTS 4

/* Of a brake: 0 as the bundle says, 1 half of it, 2 the kernel's default. */
#define STEPS 3
#define BY_DEFAULT 2

/* Who said that the default loses as much: an address that was nearly alone, or others beside the one that lost most. */
#define BY_ONE 1
#define BY_SEVERAL 2

/* Segments sent again that one flight is taken for at most. */
#define MOST_RESENT 4096

/* So long, in seconds, flights that are beside the default may keep the brake in doubt. */
#define GRACE_S 10

/* Segments that the kernel sends at once, at any rate (tcp_update_skb_after_send); and fewer than these say little. */
#define TRAIN 10
#define LEAST_TRAIN 4

/* Of a bundle. */
#define OWN_SIDES 64

#define ALGORITHMS 16
#define ALGORITHM_NAME 16
#define ARMS 2
/* The one in use, the one that was in use or is being filled where user space was killed, and a free one. */
#define SLOTS 3

/*
 * A destination: IPv4 as ::ffff:a.b.c.d, as the kernel shows it on a socket of both families too. `length` is that of
 * the mapped form, and first, as BPF_MAP_TYPE_LPM_TRIE wants it.
 */
struct prefix {
	__u32 length;
	__u32 address[4]; /* network byte order */
};

/* Entry.flags */
#define LEAVE_ALONE 1 /* an excluded destination: counted, nothing else */
#define NOTHING 2     /* hides a wider IPv6 prefix from mapped IPv4 addresses */

/* What connections to a prefix start with; 0 is the kernel's default. */
struct entry {
	__u64 from_bytes;	/* acknowledged, before the algorithm acts */
	__u32 window;		/* segments */
	__u32 rate;		/* bytes/s, shared by all in their first flights */
	__u32 connection_rate;	/* bytes/s, the most of it that one gets */
	__u32 trial_window;
	__u32 trial_rate;
	__u32 trial_connection_rate;
	__u32 receive_window;	/* segments */
	__u16 trial_permille;
	__u8 algorithm;		/* 1 + index into settings.algorithms */
	__u8 length;		/* of its prefix */
	__u8 flags;
	__u8 slot;		/* of the settings of its generation */
	__u16 default_resent;	/* segments that a first flight of the default sends again, in 1/16; 0 is not known */
	__u8 padding[4];
};

/* What all entries of a generation share. */
struct settings {
	__u64 generation;
	__s64 round;
	__u64 deadline_ns;	/* CLOCK_BOOTTIME: from then on nothing is done */
	__u64 seed;		/* of the shares */
	__u64 half_life_ns;
	__u32 lift_bytes;
	__u32 lift_round_trips;	/* 0 is no bound */
	__u32 brake_permille;
	__u32 brake_connections; /* 0 is no brake */
	__u32 record_permille;
	__u32 padding;
	char algorithms[ALGORITHMS][ALGORITHM_NAME];
};

/*
 * One for the whole program: what user space must find again after a restart, and switches that the program reads. The first
 * three words stay where they are in every LAYOUT: by them a set of another version is told to lift its caps.
 */
struct about {
	__u32 layout;
	__u32 receive_windows;	/* some entry has one */
	__u32 draining;		/* nothing starts with our values, and caps are lifted at the next acknowledgement */
	__u32 slot;		/* of the settings in use */
	__u32 pending;		/* being filled; the same as `slot` where nothing is unfinished */
	__u32 others;		/* other sockops programs that see the same connections */
	__u64 generation;
	__s64 round;
	__s64 applied_at;	/* seconds since the epoch */
	__s64 expires_at;
	__u32 entries;
	__u32 excluded;
	__u32 programs[2];	/* ids: in use, and the one that it replaces */
	__u8 object[32];	/* SHA-256 of the object that the program comes from */
	__u8 digest[32];	/* SHA-256 of the bundle */
};

/*
 * Connections that are left alone by this host's own side of them, whatever their destination: those to a port (0: any)
 * of a network (of no length: any), mapped as in struct prefix. The settings of a generation have the same slot.
 */
struct own_side {
	__u32 address[4]; /* network byte order */
	__u32 mask[4];
	__u32 port;
};

struct left_alone {
	__u32 count;
	struct own_side sides[OWN_SIDES];
};

/* Connections that started within a period and are in their first flights. */
struct flights {
	__u32 period;
	__u32 live;
	__u32 most;	/* of all periods that count, the most at once */
};

/* First flights that are over, of those that sent more than the kernel's first window; in 1/256. */
struct tally {
	__u64 flights;
	__u64 resent;	/* segments, in all of them */
};

/* What one address did to an arm of an entry since its present step was entered, in 1/256. */
struct suspect {
	__u32 address;	/* hashed; an IPv6 address counts by its first 64 bits */
	__u32 exposed;
	__u32 lost;
	__u32 padding;
	struct tally by_default;	/* of the kernel's default */
};

/* How an arm of an entry does. Counts are in 1/256 and decay; all but the tallies are of the present step. */
struct brake {
	__u64 since_ns;
	__u64 changed_ns;	/* when the step was entered */
	__u64 default_mean;	/* what a flight of the default lost when it excused, in 1/256; 0 excuses nothing */
	struct tally tallies[STEPS];	/* by the step that flights started with */
	__u32 exposed;	/* sent more than the kernel's first window, and got an answer */
	__u32 lost;	/* of them, segments in their first flights */
	__u32 step;
	__u32 turn;	/* of the suspect's place that is looked at first */
	struct suspect suspects[SUSPECTS];
	__u16 excused;	/* the default lost as much in this round, and the brake was taken back: BY_ONE or BY_SEVERAL */
	__u16 doubted_s;	/* since when too much is lost but too few flights are over to compare; 0 is not so */
	__u32 crowded;	/* addresses beside the one that lost most were there as it stepped back in this round */
};

/* What the program knows of a prefix; made at its first connection, and kept from bundle to bundle. */
struct state {
	__u32 lock;	/* struct bpf_spin_lock */
	__u32 padding;
	__s64 round;	/* that the brakes' steps belong to */
	struct flights flights[PERIODS];
	struct brake brakes[ARMS];
	__u64 started[ARMS];	/* with our values */
	__u64 exposed[ARMS];
	__u64 lost[ARMS];
	__u64 untreated[ARMS];	/* the trial or the brake says the kernel's default */
	__u64 switched;
	__u64 refused;
	__u64 late;	/* after a SYN that was sent again */
	__u64 braked;
	__u64 excused;
};

/* Start.flags */
#define CAPPED 1	/* our cap is set */
#define COUNTED 2	/* in the budget of its entry */
#define EXPOSED 4
#define LOST 8
#define JUDGED 16	/* its first flights are acknowledged */
#define SWITCHED 32	/* the algorithm was set, or refused */
#define RECORD 64	/* leaves a record */
#define UNANSWERED 128	/* nothing was acknowledged since the retransmission timer ran out */

/*
 * What a connection started with; a socket's own storage. The first 32 bytes are for readers of samples. `flags` and `now_rate`
 * stay where they are in every LAYOUT: by them a withdrawal lifts the caps of a set of another version.
 */
struct start {
	__s64 round;
	__u32 window;	/* segments that were set; 0 the kernel's default */
	__u32 rate;	/* bytes/s that were set, its share of the entry's; 0 no cap */
	__u8 arm;	/* 0 the entry's values, 1 the trial's */
	__u8 step;	/* of the brake */
	__u8 flags;
	__u8 layout;
	__u32 at_once;	/* what the entry's rate was divided by; 0 before anything is sent */
	__u64 generation;
	struct prefix entry;
	__u32 period;
	__u64 at_ns;	/* CLOCK_MONOTONIC, established */
	__u64 from_bytes;
	__u64 acked;	/* bytes_acked when established */
	__u32 resent;	/* total_retrans when established */
	__u32 sequence;	/* snd_nxt when established */
	__u32 round_end;
	__u32 round_trips;
	__u32 first_end; /* snd_nxt when the first flights were out */
	__u32 first_resent;
	__u32 lift_bytes;
	__u32 lift_round_trips;
	__u32 brake_permille;
	__u32 brake_connections;
	__u64 half_life_ns;
	__u32 first_us;	/* since established: first data acknowledged; 10, 50 and 100 kB; cap lifted. 0 never */
	__u32 acked_10k_us;
	__u32 acked_50k_us;
	__u32 acked_100k_us;
	__u32 lifted_us;
	__u32 srtt_us;	/* of the handshake */
	__u32 whole_rate;	/* the entry's, or what the brake left of it */
	__u32 now_rate;		/* the cap in force; `rate` is the first */
	__u32 others;		/* callbacks that other programs want */
	__u32 most_rate;	/* its cap never exceeds it; 0 no bound */
	char algorithm[ALGORITHM_NAME]; /* to be set; empty for none */
	__u32 seen_us;		/* when it was last looked at, and the bytes acknowledged by then */
	__u32 seen_bytes;
	__u32 control;		/* starts as the kernel does because of the brake, which asks what that loses */
	__u32 untold;		/* the brake has still to hear what its first flights lost in all */
	__u32 train_base;	/* tcp_sock.delivered when established */
	__u32 train_seen;	/* segments delivered since, at the last look, and when; 0 none yet */
	__u32 train_seen_us;
	__u32 train_first;	/* the same of the look with which the train began */
	__u32 train_first_us;
	__u32 train_first_bytes;	/* acknowledged then */
	__u32 train_sent_us;	/* when the last of those was sent */
	__u32 train_bytes;	/* of the longest train, delivered after its first look; and in how long */
	__u32 train_us;
	__u32 train_over;
	__u32 first_segments;	/* data_segs_out when first_resent was read: both of the same flights */
	__u32 padding;
};

/*
 * A connection's first flights, written as it closes. Times in microseconds since it was established, 0 never. The program
 * looks once a round trip and as the connection's state changes; between two looks acknowledgements are taken for even, as
 * those of what is paced are: the times of bursts are late by up to a round trip.
 */
struct record {
	__u64 cookie;
	__u64 closed_ns;	/* CLOCK_BOOTTIME */
	__u64 generation;
	__s64 round;
	__u64 acked_bytes;
	__u64 netns;		/* inode of the network namespace */
	__u32 local[4];		/* as in struct prefix */
	__u32 remote[4];
	__u32 local_port;
	__u32 remote_port;
	__u32 length;		/* of the entry's prefix */
	__u32 window;
	__u32 rate;
	__u32 at_once;
	__u32 first_resent;	/* segments of the first flights that were sent again */
	__u32 resent;
	__u32 segments;		/* with data, sent */
	__u32 handshake_us;
	__u32 min_rtt_us;
	__u32 first_us;
	__u32 acked_10k_us;
	__u32 acked_50k_us;
	__u32 acked_100k_us;
	__u32 lifted_us;
	__u32 lived_us;
	__u32 train_bytes;	/* of what the kernel sends at once, delivered after the first of it; 0 is not known */
	__u32 train_us;		/* ... in how long */
	__u32 first_segments;	/* with data, sent in the first flights, first_resent among them */
	__u8 arm;
	__u8 step;
	__u8 flags;
	__u8 layout;
	__u32 padding;
};

/* Counters of the whole program, one set per CPU. */
enum total {
	STARTED,	/* with our values */
	UNTREATED,	/* matched, and left at the kernel's default by the trial or the brake */
	EXCLUDED,
	EXPIRED,
	LATE,		/* the SYN was sent again */
	REFUSED_WINDOW,
	REFUSED_RATE,
	REFUSED_ALGORITHM,
	OWN_RATE,	/* the application has a cap of its own */
	NO_MEMORY,	/* no room for the socket's storage */
	NO_STATE,	/* no room for the prefix's state */
	EXPOSED_TOTAL,
	LOST_TOTAL,
	SWITCHED_TOTAL,
	BRAKED,
	RECORDS,
	RECORDS_LOST,	/* the ring buffer was full */
	CAPS,		/* set */
	CAPS_ENDED,	/* lifted, or closed with */
	EXCUSED,	/* brakes that were taken back */
	TOTALS,
};
