// dynalite ends when a client hangs up in the middle of a request; a server that is asked over bad networks goes on.
process.on("uncaughtException", (error) => {
  if (error.code !== "ECONNRESET") throw error;
});
