/* What the generator itself can do: the same publishers and subscribers against a child process
 * that only swallows bytes or only pours out messages made beforehand. */
#ifndef LOADGEN_CALIBRATE_H
#define LOADGEN_CALIBRATE_H

void calibrate_run(int payload_bytes, double seconds);

#endif
