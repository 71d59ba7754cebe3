import { useQuery } from "@tanstack/react-query";

import { taken } from "./client";
import { useScope } from "./session";

export function useWorkers() {
  const { api, key } = useScope();
  return useQuery({ queryKey: key("workers"), queryFn: () => taken(api.GET("/api/v1/workers")), refetchInterval: 5000 });
}
