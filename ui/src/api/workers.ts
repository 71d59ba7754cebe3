
import { taken } from "./client";
import { useRead } from "./read";
import { useScope } from "./session";

export function useWorkers() {
  const { api, key } = useScope();
  return useRead({ queryKey: key("workers"), queryFn: () => taken(api.GET("/api/v1/workers")), refetchInterval: 5000 });
}
